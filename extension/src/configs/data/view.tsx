import { PathExt } from '@jupyterlab/coreutils';
import * as React from 'react';

import { dataIcon } from '../../icons';
import { trans } from '../../trans';
import { count } from '../../ui/format';
import { useChanges } from '../../ui/hooks';
import { Busy, TroubleBox } from '../../ui/parts';
import { MainView } from '../../ui/widgets';
import { ConfigData, DataBin, DataRow, DataToken } from '../../wire';
import { DataModel, Side } from './model';

interface IProps {
  model: DataModel;
}

/**
 * What the model will see: findings, lengths, and rows with their tokens.
 */
export function DataView(props: IProps): JSX.Element {
  const { model } = props;
  useChanges(model);
  const { data, trouble, isBusy } = model;
  return (
    <div className="llmops-data" aria-busy={isBusy}>
      <Bar {...props} />
      {isBusy && (
        <Busy
          text={trans.__(
            'Reading the data. The first look loads the tokenizer, which takes longest.'
          )}
        />
      )}
      {trouble && <TroubleBox trouble={trouble} />}
      {data && !trouble && (
        <div className={isBusy ? 'llmops-data-old' : undefined}>
          <div className="llmops-data-columns">
            <Facts data={data} />
            <Histogram data={data} />
          </div>
          <Rows {...props} data={data} />
        </div>
      )}
    </div>
  );
}

function Bar({ model }: IProps): JSX.Element {
  const sides: [Side, string][] = [
    ['train', trans.__('Training rows')],
    ['eval', trans.__('Evaluation rows')]
  ];
  const hasEval = model.data?.has_eval ?? false;
  return (
    <div className="llmops-data-bar">
      <div role="group" aria-label={trans.__('Rows to show')}>
        {sides.map(([side, label]) => (
          <button
            key={side}
            type="button"
            aria-pressed={model.side === side}
            disabled={side === 'eval' && !hasEval}
            title={
              side === 'eval' && !hasEval
                ? trans.__('The config names no evaluation rows')
                : label
            }
            onClick={() => void model.load(side)}
          >
            {label}
          </button>
        ))}
      </div>
      <button type="button" onClick={() => void model.load()}>
        {trans.__('Refresh')}
      </button>
      <RowField model={model} />
    </div>
  );
}

function RowField({ model }: IProps): JSX.Element {
  const [text, setText] = React.useState('');
  const row = Number(text);
  const isRow = Number.isInteger(row) && row >= 1;
  return (
    <form
      onSubmit={event => {
        event.preventDefault();
        if (isRow) {
          void model.showRow(row);
        }
      }}
    >
      <label>
        {trans.__('Row')}{' '}
        <input
          type="number"
          min={1}
          step={1}
          value={text}
          onChange={event => setText(event.target.value)}
        />
      </label>
      <button type="submit" disabled={!isRow || model.isBusy}>
        {trans.__('Show')}
      </button>
    </form>
  );
}

function Facts(props: { data: ConfigData }): JSX.Element {
  const { data } = props;
  return (
    <section aria-label={trans.__('Findings')}>
      <table className="llmops-data-facts">
        <tbody>
          {data.facts.map(({ label, text, level }) => (
            <tr key={label} data-level={level}>
              <th scope="row">{label}</th>
              <td>
                {level === 'warning' && (
                  <b className="llmops-data-mark">{trans.__('Warning:')} </b>
                )}
                {text}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Histogram(props: { data: ConfigData }): JSX.Element {
  const { data } = props;
  const most = Math.max(1, ...data.bins.map(bin => bin.rows ?? 0));
  return (
    <section aria-label={trans.__('Lengths')}>
      <h3>{trans.__('Tokens a row, of %1', data.lengths)}</h3>
      <table className="llmops-data-bins">
        <tbody>
          {data.bins.map(bin => (
            <Bin key={bin.label} bin={bin} most={most} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Bin({ bin, most }: { bin: DataBin; most: number }): JSX.Element {
  if (bin.rows === null) {
    return (
      <tr className="llmops-data-limit">
        <td colSpan={3}>{bin.label}</td>
      </tr>
    );
  }
  // Any row at all is seen.
  const width = bin.rows ? Math.max(0.5, (100 * bin.rows) / most) : 0;
  return (
    <tr data-beyond={bin.is_beyond}>
      <th scope="row">{bin.label}</th>
      <td>{count(bin.rows)}</td>
      <td>
        <div style={{ width: `${width}%` }} />
      </td>
    </tr>
  );
}

function Rows(props: IProps & { data: ConfigData }): JSX.Element {
  const { model, data } = props;
  return (
    <section aria-label={trans.__('Rows')}>
      <h3>{trans.__('Rows as the model sees them')}</h3>
      <Legend />
      {model.isRowBusy && <Busy text={trans.__('Reading the row…')} />}
      {model.rowTrouble && <TroubleBox trouble={model.rowTrouble} />}
      {model.row && (
        <div className="llmops-data-chosen" role="status">
          <Row row={model.row} model={model} />
        </div>
      )}
      {data.rows.map((row, index) => (
        <Row key={index} row={row} model={model} />
      ))}
    </section>
  );
}

function Legend(): JSX.Element {
  return (
    <div className="llmops-data-legend llmops-data-tokens">
      <span data-kind="loss">{trans.__('counts for the loss')}</span>{' '}
      <span data-kind="context">{trans.__('is read only')}</span>{' '}
      <span data-kind="cut">{trans.__('is beyond max_length')}</span>{' '}
      <span data-kind="context" data-special={true}>
        {trans.__('special token')}
      </span>
    </div>
  );
}

function Row(props: IProps & { row: DataRow }): JSX.Element {
  const { row, model } = props;
  const { number, hidden } = row;
  return (
    <div className="llmops-data-row">
      <div className="llmops-data-head">{row.head}</div>
      <Tokens tokens={row.tokens} />
      {hidden > 0 && (
        <div className="llmops-data-head">
          {trans._n('%1 more token', '%1 more tokens', hidden)}{' '}
          {number !== null && row !== model.row && (
            <button
              type="button"
              className="llmops-configs-new"
              onClick={() => void model.showRow(number)}
            >
              {trans.__('Show the whole row')}
            </button>
          )}
        </div>
      )}
    </div>
  );
}

/** Memoised: a row may have thousands of tokens. */
const Tokens = React.memo(function Tokens(props: {
  tokens: readonly DataToken[];
}): JSX.Element {
  const { tokens } = props;
  const words = {
    loss: trans.__('counts for the loss'),
    context: trans.__('is read only'),
    cut: trans.__('is beyond max_length')
  };
  return (
    <div className="llmops-data-tokens">
      {tokens.map(({ text, ids, kind, special }, index) => (
        <span
          key={index}
          data-kind={kind}
          data-special={special || undefined}
          title={`${trans.__('token %1', ids.join(', '))}: ${words[kind]}`}
        >
          {text}
        </span>
      ))}
    </div>
  );
});

export function dataWidgetId(path: string): string {
  return `llmops-data-${path}`;
}

/**
 * The data of one config in the main area.
 */
export class DataWidget extends MainView<DataModel> {
  constructor(model: DataModel) {
    const { path } = model;
    super(model, <DataView model={model} />, {
      id: dataWidgetId(path),
      icon: dataIcon,
      label: trans.__('Data: %1', PathExt.basename(path)),
      caption: trans.__('The data of %1 as the model will see it', path)
    });
    this.toolbar.hide();
  }
}
