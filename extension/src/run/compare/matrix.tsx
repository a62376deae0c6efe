import * as React from 'react';

import { trans } from '../../trans';
import { Name, Scrolled, StateBadge } from '../../ui/parts';
import {
  Comparison,
  ComparisonMatrix,
  MatrixCell,
  MatrixLine
} from '../../wire';
import { COLORS } from './curves';
import { IShownName, shownNames } from './names';

/** Of more columns of what differs the first are shown: figures must be in sight. */
const MANY = 5;

interface IProps {
  comparison: Comparison;
  /** Opens a run. */
  open: (runId: string) => void;
  /** The run that was chosen as the baseline; its comparison may still be on its way. */
  base?: string;
  /** Compares with another run from now on. */
  setBase: (runId: string) => void;
}

/**
 * What differs between several runs and what came of it, a line a run; the mean of those that
 * differ in nothing but their seeds stands before them.
 */
export function Matrix(props: IProps): JSX.Element {
  const { comparison } = props;
  const { matrix } = comparison;
  const [isWhole, setWhole] = React.useState(false);
  const shown = shownFields(matrix, isWhole);
  const hidden = matrix.fields.length - shown.length;
  const names = shownNames(comparison.runs);
  return (
    <section className="llmops-matrix" aria-label={trans.__('What differs')}>
      <Scrolled
        className="llmops-compare-scroll"
        label={trans.__('What differs, and the figures of the runs')}
      >
        <table className="llmops-lab-table">
          <thead>
            <tr>
              <th scope="col">{trans.__('Run')}</th>
              {shown.map(at => (
                <th key={at} scope="col" title={matrix.fields[at].path}>
                  {matrix.fields[at].label}
                </th>
              ))}
              {matrix.figures.map(label => (
                <th key={label} scope="col" className="llmops-matrix-number">
                  {label}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {matrix.lines.map(line => (
              <tr
                key={line.runs.join()}
                data-mean={line.runs.length > 1}
                data-base={line.is_base}
              >
                <th scope="row">
                  {line.runs.length > 1 ? (
                    <Mean line={line} />
                  ) : (
                    <Run
                      {...props}
                      index={line.runs[0]}
                      name={names[line.runs[0]]}
                      note={line.note}
                    />
                  )}
                </th>
                {shown.map(at => (
                  <td key={at} title={line.values[at]}>
                    {line.values[at]}
                  </td>
                ))}
                {line.cells.map((cell, at) => (
                  <Cell key={at} cell={cell} />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Scrolled>
      {(hidden > 0 || isWhole) && (
        <button
          type="button"
          className="llmops-runs-link"
          aria-expanded={isWhole}
          onClick={() => setWhole(!isWhole)}
        >
          {isWhole
            ? trans.__('Show fewer columns')
            : trans._n(
                'Show %1 more that differs',
                'Show %1 more that differ',
                hidden
              )}
        </button>
      )}
    </section>
  );
}

/** Places of the fields that are shown: what says little only when all are. */
export function shownFields(
  { fields }: Pick<ComparisonMatrix, 'fields'>,
  isWhole: boolean
): number[] {
  const all = fields.map((_, at) => at);
  return isWhole ? all : all.filter(at => !fields[at].is_minor).slice(0, MANY);
}

function Run(
  props: IProps & { index: number; name: IShownName; note: string }
): JSX.Element {
  const { comparison, index, name } = props;
  const run = comparison.runs[index];
  const chosen = props.base ?? comparison.runs[comparison.base].run_id;
  const isBase = run.run_id === chosen;
  return (
    <span className="llmops-matrix-run">
      <input
        type="radio"
        name={`llmops-base-${comparison.runs.map(each => each.run_id).join()}`}
        checked={isBase}
        aria-label={trans.__('Compare the others with %1', name.text)}
        title={isBase ? trans.__('Baseline') : trans.__('Make it the baseline')}
        onChange={() => props.setBase(run.run_id)}
      />
      <span
        className="llmops-compare-color"
        style={{ background: COLORS[index % COLORS.length] }}
      />
      <button
        type="button"
        title={`${name.text}\n${run.run_id}`}
        onClick={() => props.open(run.run_id)}
      >
        <Name {...name} />
      </button>
      {props.note && <StateBadge state={run.state} title={props.note} />}
    </span>
  );
}

function Mean(props: { line: MatrixLine }): JSX.Element {
  return (
    <span
      title={trans.__(
        'Mean ± standard deviation of runs that differ in nothing but their seeds'
      )}
    >
      {props.line.label}
    </span>
  );
}

function Cell(props: { cell: MatrixCell }): JSX.Element {
  const { text, change, is_best } = props.cell;
  return (
    <td className="llmops-matrix-number" data-best={is_best}>
      <span title={is_best ? trans.__('The best of them') : undefined}>
        {text}
      </span>
      {change && (
        <span
          className="llmops-compare-ratio"
          title={trans.__('Compared with the baseline')}
        >
          {change}
        </span>
      )}
    </td>
  );
}
