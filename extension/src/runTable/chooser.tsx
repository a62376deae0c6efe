import * as React from 'react';

import { trans } from '../trans';
import { RunTableColumn } from '../wire';
import { RunTableModel } from './model';

/**
 * Which columns are shown; without a choice the usual ones and those that differ.
 */
export function Chooser(props: { model: RunTableModel }): JSX.Element {
  const { model } = props;
  const [text, setText] = React.useState('');
  React.useEffect(() => void model.loadColumns(), [model]);
  const shown = (model.answer?.columns ?? []).map(({ name }) => name);
  const chosen = new Set(shown);
  const found = model.every.filter(column =>
    `${column.name} ${column.label}`.toLowerCase().includes(text.toLowerCase())
  );
  const toggle = (name: string) => {
    const columns = chosen.has(name)
      ? shown.filter(other => other !== name)
      : [...shown, name];
    model.set({ columns });
  };
  return (
    <div
      className="llmops-runtable-chooser"
      role="group"
      aria-label={trans.__('Columns')}
    >
      <div className="llmops-runtable-chooser-head">
        <input
          className="jp-mod-styled"
          type="search"
          value={text}
          placeholder={trans.__('Find a column')}
          aria-label={trans.__('Find a column')}
          onChange={event => setText(event.target.value)}
        />
        <button
          type="button"
          className="llmops-runs-link"
          disabled={model.state.columns.length === 0}
          onClick={() => model.set({ columns: [] })}
        >
          {trans.__('Back to the usual columns')}
        </button>
      </div>
      {SOURCES.map(source => (
        <Section
          key={source}
          title={titleOf(source)}
          columns={found.filter(column => column.source === source)}
          chosen={chosen}
          toggle={toggle}
        />
      ))}
    </div>
  );
}

const SOURCES = ['figure', 'config', 'run'] as const;

function titleOf(source: RunTableColumn['source']): string {
  return {
    figure: trans.__('Figures and metrics'),
    config: trans.__('Config'),
    run: trans.__('Run')
  }[source];
}

function Section(props: {
  title: string;
  columns: readonly RunTableColumn[];
  chosen: ReadonlySet<string>;
  toggle: (name: string) => void;
}): JSX.Element | null {
  const { title, columns, chosen, toggle } = props;
  if (columns.length === 0) {
    return null;
  }
  return (
    <fieldset>
      <legend>{title}</legend>
      {columns.map(({ name, label }) => (
        <label key={name} title={label}>
          <input
            type="checkbox"
            checked={chosen.has(name)}
            onChange={() => toggle(name)}
          />
          {name}
        </label>
      ))}
    </fieldset>
  );
}
