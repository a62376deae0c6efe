import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { IChartSettings } from '../../tokens';
import { EmptyState } from '../../ui/parts';
import { RunColumn } from '../../wire';
import { Chart } from './chart';
import { X_KEYS, comparedColumns, drawnAs, overlaid, xOf } from './curves';
import { CompareModel } from './model';
import { short, shownNames } from './names';
import { ChartTools } from './tools';
import { useChartChoice, useZoom } from './zoom';

/** What a curve shows: what the model becomes, or how fast and with how much memory. */
export type CurveGroup = 'result' | 'speed';

const SPEEDS = new Set<RunColumn['unit']>([
  'per_second',
  'seconds',
  'bytes',
  'fraction'
]);

export function groupOf({ unit }: RunColumn): CurveGroup {
  return SPEEDS.has(unit) ? 'speed' : 'result';
}

/** The groups of which at least one run has a curve. */
export function drawnGroups(model: CompareModel): Set<CurveGroup> {
  return new Set(comparedColumns(model.runs.map(run => run.rows)).map(groupOf));
}

/** One chart a column that at least one of the runs has; of one group, or of all. */
export function Curves(props: {
  model: CompareModel;
  trans: TranslationBundle;
  charts: IChartSettings;
  group?: CurveGroup;
}): JSX.Element {
  const { model, trans, charts, group } = props;
  const [choice, choose] = useChartChoice(charts);
  const rows = model.runs.map(run => run.rows);
  const named = model.runs.map(({ runId, state }) => ({
    title: state?.row.title ?? '',
    run_id: runId
  }));
  // Only a comparison knows what differs; its runs are in the same order.
  const names = shownNames(model.comparison?.runs ?? named).map(short);
  const known = new Set<string>(
    X_KEYS.filter(axis => rows.some(run => run.count && xOf(run, axis)))
  );
  const drawn = { ...choice, x: known.has(choice.x) ? choice.x : 'step' };
  const key = model.runs.map(run => `${run.runId}:${run.rows.count}`).join();
  const shown = React.useMemo(
    () =>
      comparedColumns(rows)
        .filter(column => !group || groupOf(column) === group)
        .map(({ name, label, unit }) => {
          const { scale, suffix } = drawnAs(unit);
          const data = overlaid(rows, name, scale, drawn);
          return { name, label, unit, suffix, data };
        }),
    [key, group, drawn.x, drawn.smoothing, drawn.log]
  );
  const { shown: zoom, plotted } = useZoom(shown.map(({ data }) => data[0]));
  if (shown.length === 0) {
    return (
      <EmptyState title={trans.__('No data yet')}>
        {trans.__('Curves appear when a run reports its first step.')}
      </EmptyState>
    );
  }
  const syncKey = `llmops-${model.runIds.join()}`;
  return (
    <>
      <ChartTools
        choice={drawn}
        known={known}
        choose={part => {
          if (part.x) zoom.zoom(null);
          choose(part);
        }}
        showAll={() => zoom.zoom(null)}
        trans={trans}
      />
      <div className="llmops-compare-charts">
        {shown.map(({ name, label, unit, suffix, data }) => (
          <Chart
            key={name}
            label={label}
            xLabel={
              drawn.x === 'step'
                ? (rows.find(({ columns }) => columns[0])?.columns[0].label ??
                  '')
                : drawn.x
            }
            names={names}
            data={data}
            unit={suffix}
            syncKey={syncKey}
            fromZero={unit !== 'loss'}
            log={drawn.log}
            whole={drawn.x === 'step'}
            shown={zoom}
            plotted={plotted}
          />
        ))}
      </div>
    </>
  );
}
