import * as React from 'react';

import { trans } from '../../trans';
import { count, DASH } from '../../ui/format';
import { useChanges } from '../../ui/hooks';
import { Busy, Scrolled, TroubleBox } from '../../ui/parts';
import { ScoreComparison, ScoredMetric } from '../../wire';
import { RowsTable } from './scoreRows';
import { RowsKind, ScoresModel } from './scoresModel';

interface IProps {
  model: ScoresModel;
}

/**
 * Two scorings: metrics with confidence intervals, and the rows that changed.
 */
export function ScoresSection({ model }: IProps): JSX.Element {
  useChanges(model);
  const { comparison, trouble } = model;
  return (
    <section
      className="llmops-scores"
      aria-label={trans.__('Metrics and rows')}
      aria-busy={model.isLoading}
    >
      {trouble && (
        <TroubleBox kind={comparison ? 'error' : 'warn'} trouble={trouble} />
      )}
      {!comparison && !trouble && (
        <Busy text={trans.__('Comparing the rows of both outputs…')} />
      )}
      {comparison && (
        <>
          <Metrics comparison={comparison} />
          <p className="llmops-scores-facts">{facts(comparison)}</p>
          <Filter model={model} comparison={comparison} />
          <RowsTable model={model} />
        </>
      )}
    </section>
  );
}

function Metrics(props: { comparison: ScoreComparison }): JSX.Element | null {
  const { comparison } = props;
  if (comparison.metrics.length === 0) {
    return <p>{trans.__('Neither of the two runs has metrics.')}</p>;
  }
  const heads = [
    trans.__('Metric'),
    trans.__('Before'),
    trans.__('After'),
    trans.__('Delta'),
    trans.__('95 % interval'),
    trans.__('Rows better'),
    trans.__('Rows worse'),
    trans.__('Change')
  ];
  return (
    <Scrolled className="llmops-compare-scroll" label={trans.__('Metrics')}>
      <table className="llmops-lab-table llmops-scores-metrics">
        <thead>
          <tr>
            {heads.map(head => (
              <th key={head} scope="col">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {comparison.metrics.map(metric => (
            <tr key={metric.name} data-change={changeOf(metric)}>
              {metric.texts.map((text, index) =>
                index === 0 ? (
                  <th key={index} scope="row">
                    {text}
                  </th>
                ) : (
                  <td key={index}>{text}</td>
                )
              )}
              <td>{changeWords(metric)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scrolled>
  );
}

export type Change =
  'same' | 'better' | 'worse' | 'other' | 'unclear' | 'unknown';

/** What the interval says: a delta whose interval has zero in it may be chance. */
export function changeOf(metric: ScoredMetric): Change {
  const { delta, low, high, better } = metric;
  if (delta === null || low === null || high === null) {
    return 'unknown';
  }
  if (low === 0 && high === 0) {
    return 'same';
  }
  if (low <= 0 && high >= 0) {
    return 'unclear';
  }
  if (better === null) {
    return 'other';
  }
  return delta > 0 === (better === 'higher') ? 'better' : 'worse';
}

function changeWords(metric: ScoredMetric): string {
  return {
    same: trans.__('none'),
    better: trans.__('better'),
    worse: trans.__('worse'),
    other: trans.__('changed'),
    unclear: trans.__('not clear'),
    unknown: DASH
  }[changeOf(metric)];
}

function facts(found: ScoreComparison): string {
  const percent = (value: number | null) =>
    value === null ? DASH : `${(100 * value).toFixed(1)} %`;
  return [
    trans.__(
      '%1 of %2 outputs are identical',
      percent(found.identical),
      count(found.output_rows)
    ),
    trans.__('mean similarity %1', percent(found.similarity)),
    trans.__(
      'rows with an error: %1 before, %2 after',
      count(found.errors_before),
      count(found.errors_after)
    )
  ].join(' · ');
}

function Filter(props: IProps & { comparison: ScoreComparison }): JSX.Element {
  const { model, comparison } = props;
  const chosen = model.choice?.kind;
  const metrics = comparison.row_metrics;
  return (
    <div className="llmops-scores-filter">
      <div role="group" aria-label={trans.__('Rows')}>
        {comparison.counts.map(({ kind, label, rows }) => (
          <button
            key={kind}
            type="button"
            aria-pressed={kind === chosen}
            disabled={rows === 0 && kind !== chosen && !byMetric(kind)}
            onClick={() => void model.show({ kind })}
          >
            {label} <b>{shownCount(model, kind, rows)}</b>
          </button>
        ))}
      </div>
      {metrics.length > 1 && (
        <label>
          {trans.__('better and worse by')}
          <select
            value={model.choice?.metric ?? comparison.metric ?? ''}
            onChange={event =>
              void model.show({ metric: event.currentTarget.value })
            }
          >
            {metrics.map(name => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
      )}
    </div>
  );
}

function byMetric(kind: RowsKind): kind is 'better' | 'worse' | 'same' {
  return kind === 'better' || kind === 'worse' || kind === 'same';
}

/** Counts of better and worse rows are of the chosen metric. */
function shownCount(model: ScoresModel, kind: RowsKind, rows: number): string {
  const metric = model.choice?.metric;
  const change = model.comparison?.metrics.find(({ name }) => name === metric);
  if (!metric || !change || !byMetric(kind)) {
    return count(rows);
  }
  const { num_better: better, num_worse: worse, num_same: same } = change;
  return count({ better, worse, same }[kind]);
}
