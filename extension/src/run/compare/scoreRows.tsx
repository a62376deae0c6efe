import * as React from 'react';

import { trans } from '../../trans';
import { count, DASH } from '../../ui/format';
import { Busy } from '../../ui/parts';
import { ScoredRow, ScoredRows } from '../../wire';
import { PAGE_ROWS, ScoresModel } from './scoresModel';
import { changedWords, IPiece } from './words';

interface IProps {
  model: ScoresModel;
}

/** Of a text in a cell; an opened row has all of it. */
const CELL_CHARACTERS = 300;

/**
 * One page of rows; each can be opened.
 */
export function RowsTable({ model }: IProps): JSX.Element {
  const { page, trouble } = model;
  const [open, setOpen] = React.useState<ReadonlySet<string>>(new Set());
  if (!page) {
    return trouble ? <></> : <Busy text={trans.__('Reading rows…')} />;
  }
  if (page.rows.length === 0) {
    return <p>{trans.__('There are no such rows.')}</p>;
  }
  const toggle = (id: string) => {
    const next = new Set(open);
    if (!next.delete(id)) {
      next.add(id);
    }
    setOpen(next);
  };
  return (
    <>
      <table className="llmops-lab-table llmops-scores-rows">
        <thead>
          <tr>
            <th scope="col">{trans.__('Row')}</th>
            <th scope="col">{trans.__('Prompt')}</th>
            <th scope="col">{trans.__('Before')}</th>
            <th scope="col">{trans.__('After')}</th>
            {page.metric && <th scope="col">{page.metric}</th>}
          </tr>
        </thead>
        <tbody>
          {page.rows.map((row, place) => {
            // Rows that could not be read have no key.
            const id = `${page.kind} ${page.offset + place} ${row.key}`;
            return (
              <React.Fragment key={id}>
                <Row
                  row={row}
                  metric={page.metric}
                  isOpen={open.has(id)}
                  toggle={() => toggle(id)}
                />
                {open.has(id) && (
                  <tr className="llmops-scores-opened">
                    <td colSpan={page.metric ? 5 : 4}>
                      <OpenedRow row={row} />
                    </td>
                  </tr>
                )}
              </React.Fragment>
            );
          })}
        </tbody>
      </table>
      <Pager page={page} model={model} />
    </>
  );
}

function Row(props: {
  row: ScoredRow;
  metric: string | null;
  isOpen: boolean;
  toggle: () => void;
}): JSX.Element {
  const { row, metric, isOpen, toggle } = props;
  return (
    <tr className="llmops-scores-row" onClick={toggle}>
      <th scope="row">
        <button
          type="button"
          aria-expanded={isOpen}
          title={isOpen ? trans.__('Close the row') : trans.__('Open the row')}
          onClick={event => {
            event.stopPropagation();
            toggle();
          }}
        >
          <span aria-hidden="true">{isOpen ? '▾' : '▸'}</span> {row.key}
        </button>
      </th>
      <td>
        <Cell text={row.prompt} />
      </td>
      <td>
        <Cell text={outputText(row.before, row.before_error)} />
      </td>
      <td>
        <Cell text={outputText(row.after, row.after_error)} />
      </td>
      {metric && (
        <td className="llmops-scores-number">
          {number(row.before_metrics[metric])} →{' '}
          {number(row.after_metrics[metric])}
        </td>
      )}
    </tr>
  );
}

function Cell({ text }: { text: string }): JSX.Element {
  return (
    <div className="llmops-lab-clamped">{text.slice(0, CELL_CHARACTERS)}</div>
  );
}

/** All of a row: texts side by side, what differs is marked. */
function OpenedRow(props: { row: ScoredRow }): JSX.Element {
  const { row } = props;
  const isDiffed = row.before !== null && row.after !== null;
  const [before, after] = React.useMemo(
    () => changedWords(row.before ?? '', row.after ?? ''),
    [row]
  );
  const names = [
    ...new Set([
      ...Object.keys(row.before_metrics),
      ...Object.keys(row.after_metrics)
    ])
  ];
  const text = (pieces: IPiece[], whole: string | null, error: string) =>
    isDiffed && !error ? <Pieces pieces={pieces} /> : outputText(whole, error);
  return (
    <dl>
      <Field name={trans.__('Prompt')}>{row.prompt}</Field>
      <Field name={trans.__('Reference')}>{row.reference ?? DASH}</Field>
      <Field name={trans.__('Before')}>
        {text(before, row.before, row.before_error)}
      </Field>
      <Field name={trans.__('After')} className="llmops-scores-after">
        {text(after, row.after, row.after_error)}
      </Field>
      {row.is_cut && (
        <Field name="">{trans.__('Long texts are cut off here.')}</Field>
      )}
      {names.length > 0 && (
        <Field name={trans.__('Metrics')}>
          {names
            .map(
              name =>
                `${name} ${number(row.before_metrics[name])} → ${number(row.after_metrics[name])}`
            )
            .join('\n')}
        </Field>
      )}
    </dl>
  );
}

function Field(props: {
  name: string;
  className?: string;
  children: React.ReactNode;
}): JSX.Element {
  return (
    <div className={props.className}>
      <dt>{props.name}</dt>
      <dd>{props.children}</dd>
    </div>
  );
}

function Pieces({ pieces }: { pieces: IPiece[] }): JSX.Element {
  return (
    <>
      {pieces.map(({ text, isChanged }, index) =>
        isChanged ? (
          <mark key={index}>{text}</mark>
        ) : (
          <span key={index}>{text}</span>
        )
      )}
    </>
  );
}

function Pager(props: IProps & { page: ScoredRows }): JSX.Element {
  const { page, model } = props;
  const { offset, total, rows } = page;
  const last = offset + rows.length;
  const go = (to: number) => void model.show({ offset: Math.max(0, to) });
  return (
    <nav className="llmops-scores-pager" aria-label={trans.__('Pages of rows')}>
      <button
        type="button"
        disabled={offset === 0 || model.isLoading}
        onClick={() => go(offset - PAGE_ROWS)}
      >
        {trans.__('Previous')}
      </button>
      <span role="status">
        {trans.__(
          'Rows %1 to %2 of %3',
          count(offset + 1),
          count(last),
          count(total)
        )}
      </span>
      <button
        type="button"
        disabled={last >= total || model.isLoading}
        onClick={() => go(offset + PAGE_ROWS)}
      >
        {trans.__('Next')}
      </button>
    </nav>
  );
}

function outputText(text: string | null, error: string): string {
  return error ? `error: ${error}` : (text ?? DASH);
}

function number(value: number | null | undefined): string {
  return value === null || value === undefined
    ? DASH
    : String(+value.toPrecision(4));
}
