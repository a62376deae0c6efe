import * as React from 'react';

import { X_AXES } from '../../panel/numbers';
import { PlotData } from '../../panel/plot';
import { IChartSettings } from '../../tokens';
import { trans } from '../../trans';
import { EmptyState } from '../../ui/parts';
import { RunColumn } from '../../wire';
import { Chart } from './chart';
import {
  CurveChoice,
  IDrawnRun,
  IRunMark,
  comparedColumns,
  comparedEvals,
  comparedMarks,
  drawnAs,
  overlaid,
  overlaidEvals,
  xOf
} from './curves';
import { CompareModel } from './model';
import { shortNames, shownNames } from './names';
import { ChartTools, axisNames } from './tools';
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
  const runs = drawnRuns(model);
  const groups = comparedColumns(runs.map(run => run.rows)).map(groupOf);
  return new Set(comparedEvals(runs).length ? [...groups, 'result'] : groups);
}

function drawnRuns(model: CompareModel): IDrawnRun[] {
  return model.runs.map(({ rows, state }) => ({
    rows,
    panel: state?.panel ?? null
  }));
}

interface IPlotted {
  key: string;
  label: string;
  data: PlotData;
  unit: string;
  fromZero: boolean;
  dots: boolean;
}

/** A plot a column, then one a metric of the evaluations: of one group, or of all. */
function plotsOf(
  runs: readonly IDrawnRun[],
  choice: CurveChoice,
  group: CurveGroup | undefined
): IPlotted[] {
  const rows = runs.map(run => run.rows);
  const columns = comparedColumns(rows)
    .filter(column => !group || groupOf(column) === group)
    .map(({ name, label, unit }) => {
      const { scale, suffix } = drawnAs(unit);
      const data = overlaid(rows, name, scale, choice);
      const fromZero = unit !== 'loss';
      return { key: name, label, unit: suffix, data, fromZero, dots: false };
    });
  const evals = group === 'speed' ? [] : comparedEvals(runs);
  return [
    ...columns,
    ...evals.map(({ name, label }) => ({
      key: `eval:${name}`,
      label: `eval ${label}`,
      unit: '',
      data: overlaidEvals(runs, name, choice),
      fromZero: false,
      dots: true
    }))
  ];
}

/** One chart a column or metric that at least one of the runs has; of one group, or of all. */
export function Curves(props: {
  model: CompareModel;
  charts: IChartSettings;
  group?: CurveGroup;
}): JSX.Element {
  const { model, charts, group } = props;
  const [choice, choose] = useChartChoice(charts);
  const runs = drawnRuns(model);
  const rows = runs.map(run => run.rows);
  const names = legendNames(model);
  const known = new Set<string>(
    X_AXES.map(({ key }) => key).filter(key =>
      rows.some(run => run.count && xOf(run, key))
    )
  );
  const drawn = { ...choice, x: known.has(choice.x) ? choice.x : 'step' };
  const key = runs
    .map(({ rows, panel }) => `${rows.count}:${panel?.eval_rows.rows.length}`)
    .join();
  const shown = React.useMemo(
    () => plotsOf(runs, drawn, group),
    [key, model.comparison, group, drawn.x, drawn.smoothing, drawn.log]
  );
  const marks = comparedMarks(runs, drawn.x);
  const { zoom, plotted } = useZoom(shown.map(({ data }) => data[0]));
  if (shown.length === 0) {
    return (
      <EmptyState title={trans.__('No data yet')}>
        {trans.__('Curves appear when a run reports its first step.')}
      </EmptyState>
    );
  }
  const own = rows.find(({ columns }) => columns[0])?.columns[0].label;
  return (
    <>
      <ChartTools
        choice={drawn}
        known={known}
        choose={part => {
          if (part.x) zoom.show(null);
          choose(part);
        }}
        showAll={() => zoom.show(null)}
      />
      <div className="llmops-compare-charts">
        {shown.map(({ key, ...plot }) => (
          <Chart
            key={key}
            {...plot}
            xLabel={axisLabel(drawn.x, own)}
            names={names}
            syncKey={`llmops-${model.runIds.join()}`}
            log={drawn.log}
            whole={drawn.x === 'step'}
            marks={marks}
            zoom={zoom}
            plotted={plotted}
          />
        ))}
      </div>
      <Marks marks={marks} names={names} />
    </>
  );
}

/** Only a comparison knows what differs; its runs are in the same order. */
function legendNames(model: CompareModel): string[] {
  const named = model.runs.map(({ runId, state }) => ({
    title: state?.row.title ?? '',
    run_id: runId
  }));
  return shortNames(shownNames(model.comparison?.runs ?? named));
}

/** The words of the axis, never its key; steps are called as the runs' kind calls them. */
export function axisLabel(key: string, own: string | undefined): string {
  return (key === 'step' && own) || axisNames()[key];
}

/** What the vertical lines say, in words. */
function Marks(props: {
  marks: readonly IRunMark[];
  names: readonly string[];
}): JSX.Element | null {
  const { marks, names } = props;
  if (marks.length === 0) {
    return null;
  }
  const words = marks.map(({ run, step, bad }) => {
    const at = step.toLocaleString('en-US');
    return bad
      ? trans.__('%1: not a number (NaN) since step %2', names[run], at)
      : trans.__('%1: restarted after step %2', names[run], at);
  });
  return (
    <p className="llmops-compare-marks">
      {trans.__('Dashed lines: %1.', [...new Set(words)].join('; '))}
    </p>
  );
}
