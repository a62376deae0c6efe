import * as React from 'react';

import { trans } from '../trans';
import { useChanges } from '../ui/hooks';
import { Busy, EmptyState, TroubleBox } from '../ui/parts';
import { Bulk } from './bulk';
import { Chooser } from './chooser';
import { Grid } from './grid';
import { RunTableModel } from './model';
import { IRunTableProps } from './props';
import { Rays } from './rays';

/**
 * The table of all runs with its filter, columns and coordinates.
 */
export function RunTableView(props: IRunTableProps): JSX.Element {
  const { model } = props;
  useChanges(model);
  const [isChoosing, setChoosing] = React.useState(false);
  const { answer, trouble, rays } = model;
  return (
    <div className="llmops-runtable">
      <Tools {...props} isChoosing={isChoosing} choose={setChoosing} />
      {trouble && <TroubleBox trouble={trouble} kind="warn" />}
      {isChoosing && <Chooser model={model} />}
      <Bulk {...props} />
      {rays && <Rays rays={rays} selected={model.selected} open={props.open} />}
      {answer === null && !trouble && (
        <Busy text={trans.__('Reading the runs…')} />
      )}
      {answer !== null && answer.num_lines === 0 ? (
        <Nothing model={model} />
      ) : (
        answer !== null && <Grid {...props} />
      )}
    </div>
  );
}

function Nothing(props: { model: RunTableModel }): JSX.Element {
  const { model } = props;
  const total = model.answer?.total ?? 0;
  return total === 0 ? (
    <EmptyState title={trans.__('No runs yet')}>
      {trans.__('Open a *.train.yaml file and press Submit.')}
    </EmptyState>
  ) : (
    <EmptyState title={trans.__('No run matches')}>
      {trans.__('The filter hides %1 runs. ', total)}
      <button
        type="button"
        className="llmops-runs-link"
        onClick={() => model.set({ where: '' })}
      >
        {trans.__('Clear the filter')}
      </button>
    </EmptyState>
  );
}

function Tools(
  props: IRunTableProps & {
    isChoosing: boolean;
    choose: (isChoosing: boolean) => void;
  }
): JSX.Element {
  const { model, actions, isChoosing, choose } = props;
  const { state } = model;
  return (
    <div className="llmops-runtable-tools">
      <Filter model={model} />
      <Picker
        label={trans.__('Group by')}
        value={state.group}
        model={model}
        pick={group => model.set({ group })}
      />
      <Picker
        label={trans.__('Colour by')}
        value={state.colour_by}
        model={model}
        pick={colour_by => model.set({ colour_by })}
      />
      <Toggle on={isChoosing} set={choose} text={trans.__('Columns')} />
      <Toggle
        on={state.rays}
        set={isOn => model.set({ rays: isOn })}
        text={trans.__('Coordinates')}
      />
      <button
        type="button"
        className="jp-mod-styled"
        title={trans.__('Download all runs that match, with these columns')}
        onClick={() => void actions.download('csv')}
      >
        {trans.__('CSV')}
      </button>
      <button
        type="button"
        className="jp-mod-styled"
        title={trans.__('Download all runs that match, with these columns')}
        onClick={() => void actions.download('parquet')}
      >
        {trans.__('Parquet')}
      </button>
      <Counts model={model} />
    </div>
  );
}

function Counts(props: { model: RunTableModel }): JSX.Element | null {
  const { model } = props;
  const answer = model.answer;
  if (!answer) {
    return null;
  }
  // Of a filter that cannot be read nothing is known but what matched before.
  const shown = model.trouble
    ? trans.__('not filtered: %1 of %2 runs', answer.matched, answer.total)
    : trans.__('%1 of %2 runs', answer.matched, answer.total);
  return (
    <span className="llmops-runtable-counts" role="status">
      {answer.reading ? trans.__('%1, reading more…', shown) : shown}
    </span>
  );
}

function Toggle(props: {
  on: boolean;
  set: (on: boolean) => void;
  text: string;
}): JSX.Element {
  return (
    <button
      type="button"
      className="jp-mod-styled llmops-runtable-toggle"
      aria-pressed={props.on}
      onClick={() => props.set(!props.on)}
    >
      {props.text}
    </button>
  );
}

/** Asks when typing pauses, and at once with Return. */
function Filter(props: { model: RunTableModel }): JSX.Element {
  const { model } = props;
  const { where } = model.state;
  const [text, setText] = React.useState(where);
  React.useEffect(() => setText(where), [where]);
  React.useEffect(() => {
    if (text === where) {
      return;
    }
    const timer = setTimeout(() => model.set({ where: text }), 350);
    return () => clearTimeout(timer);
  }, [model, text, where]);
  return (
    <input
      className="jp-mod-styled llmops-runtable-filter"
      type="search"
      spellCheck={false}
      value={text}
      placeholder={trans.__('Filter: method.r > 8 and eval_loss < 0.4')}
      aria-label={trans.__('Filter by columns')}
      aria-invalid={model.trouble !== null}
      title={trans.__(
        'Columns, numbers, "texts", == != < <= > >= in, and or not. A run whose value is unknown never matches.'
      )}
      onChange={event => setText(event.target.value)}
      onKeyDown={event => {
        if (event.key === 'Enter') {
          model.set({ where: text });
        }
      }}
    />
  );
}

function Picker(props: {
  label: string;
  value: string;
  model: RunTableModel;
  pick: (name: string) => void;
}): JSX.Element {
  const { label, value, model, pick } = props;
  const names = (model.answer?.columns ?? []).map(({ name }) => name);
  const more = model.every.map(({ name }) => name);
  const every = [...new Set(['name', ...names, ...more])];
  return (
    <label className="llmops-runtable-picker">
      {label}
      <select
        className="jp-mod-styled"
        value={value}
        onFocus={() => void model.loadColumns()}
        onChange={event => pick(event.target.value)}
      >
        <option value="">{trans.__('nothing')}</option>
        {value !== '' && !every.includes(value) && <option>{value}</option>}
        {every.map(name => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
