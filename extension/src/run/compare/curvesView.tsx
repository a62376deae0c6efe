import * as React from 'react';

import { X_AXES } from '../../panel/numbers';
import { ILine, IPlan } from '../../panel/plot';
import { IChartSettings } from '../../tokens';
import { trans } from '../../trans';
import { EmptyState } from '../../ui/parts';
import { RunColumn } from '../../wire';
import {
  ChartTools,
  CurveChart,
  axisNames,
  boundsOf,
  useChartChoice,
  useCharts
} from './chart';
import {
  COLORS,
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

/** What a curve shows: what the model becomes, or how fast and with how much memory. */
type CurveGroup = 'result' | 'speed';

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
  plan: IPlan;
}

/** A plot a column, then one a metric of the evaluations: of one group, or of all. */
function plotsOf(
  runs: readonly IDrawnRun[],
  names: readonly string[],
  choice: CurveChoice,
  xLabel: string,
  group: CurveGroup | undefined
): IPlotted[] {
  const rows = runs.map(run => run.rows);
  const plotted = (
    key: string,
    label: string,
    plan: Pick<IPlan, 'data' | 'unit' | 'fromZero'>
  ): IPlotted => ({
    key,
    label,
    plan: {
      ...plan,
      label,
      lines: linesOf(names, plan.data.length, key.startsWith('eval:')),
      x: { key: choice.x, label: xLabel, values: [] },
      log: choice.log,
      note: '',
      text: ''
    }
  });
  const columns = comparedColumns(rows)
    .filter(column => !group || groupOf(column) === group)
    .map(({ name, label, unit }) => {
      const { scale, suffix } = drawnAs(unit);
      const data = overlaid(rows, name, scale, choice);
      const fromZero = unit !== 'loss';
      return plotted(name, label, { data, unit: suffix, fromZero });
    });
  const evals = group === 'speed' ? [] : comparedEvals(runs);
  return [
    ...columns,
    ...evals.map(({ name, label }) =>
      plotted(`eval:${name}`, `eval ${label}`, {
        data: overlaidEvals(runs, name, choice),
        unit: '',
        fromZero: false
      })
    )
  ];
}

/** A line a run; the raw ones stay visible behind the smoothed ones. */
function linesOf(
  names: readonly string[],
  numColumns: number,
  dots: boolean
): ILine[] {
  const isSmoothed = numColumns > names.length + 1;
  const raw = names.map((label, run) => ({
    label,
    color: COLORS[run % COLORS.length],
    faint: isSmoothed,
    dots
  }));
  const curves = raw.map(line => ({
    ...line,
    label: `${line.label}, smoothed`,
    faint: false
  }));
  return isSmoothed ? [...raw, ...curves] : raw;
}

/** One chart a column or metric that at least one of the runs has; of one group, or of all. */
export function Curves(props: {
  model: CompareModel;
  charts: IChartSettings;
  group?: CurveGroup;
}): JSX.Element {
  const { model, group } = props;
  const [choice, choose] = useChartChoice(props.charts);
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
  const own = rows.find(({ columns }) => columns[0])?.columns[0].label;
  const xLabel = axisLabel(drawn.x, own);
  const { zoom, charts, theme } = useCharts(`llmops-${model.runIds.join()}`);
  const marks = comparedMarks(runs, drawn.x);
  const marked = marks.map(({ x }) => x).join();
  const shown = React.useMemo(
    () => plotsOf(runs, names, drawn, xLabel, group),
    [
      key,
      names.join('\n'),
      model.comparison,
      group,
      drawn.x,
      drawn.smoothing,
      drawn.log,
      xLabel,
      marked,
      theme
    ]
  );
  zoom.bounds = boundsOf(shown.map(({ plan }) => plan.data[0]));
  zoom.marks = marks;
  if (shown.length === 0) {
    return (
      <EmptyState title={trans.__('No data yet')}>
        {trans.__('Curves appear when a run reports its first step.')}
      </EmptyState>
    );
  }
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
        {shown.map(({ key, label, plan }) => (
          <CurveChart
            key={key}
            title={label}
            plan={plan}
            zoom={zoom}
            charts={charts}
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
