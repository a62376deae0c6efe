import { marksOf } from '../../panel/charts';
import {
  AXIS_COLUMNS,
  IChartChoice,
  IXAxis,
  Point,
  atSteps,
  positive,
  smoothed,
  xValues
} from '../../panel/numbers';
import { IMark, PlotData } from '../../panel/plot';
import { RunData } from '../../panel/runData';
import { UNITS } from '../../panel/tabs';
import { PanelState, RunColumn } from '../../wire';

/** A user's choices for the curves of several runs. */
export type CurveChoice = Omit<IChartChoice, 'more'>;

const AS_IT_IS: CurveChoice = { x: 'step', smoothing: 0, log: false };
type Numbers = (number | null)[];

/** A run's x axis; null where it does not know all values of it. */
function axisOf(rows: RunData, key: string): IXAxis | null {
  const native = { label: '', values: rows.x };
  return xValues(key, native, name => rows.values(name));
}

/** A run's x values on an axis; null where it does not know them all. */
export function xOf(rows: RunData, key: string): ArrayLike<number> | null {
  return axisOf(rows, key)?.values ?? null;
}

/**
 * A column of several runs over the union of their x values, as a chart takes it; null where
 * a run has no value. The x values of each run rise, so one pass over all of them is enough.
 * A smoothed column of each run follows behind those of all runs, if there is smoothing.
 */
export function overlaid(
  runs: readonly RunData[],
  name: string,
  scale = 1,
  { x: key, smoothing, log }: CurveChoice = AS_IT_IS
): PlotData {
  const own = runs.map(rows => xOf(rows, key));
  const raw = runs.map(rows => rows.column(name, scale));
  const all = smoothing
    ? [...raw, ...raw.map(numbers => smoothed(numbers, smoothing))]
    : raw;
  // A run that does not know the axis has no place on it.
  const steps = all.map((_, index) => own[index % runs.length] ?? []);
  const values = log ? all.map(numbers => positive(numbers).values) : all;
  return union(steps, values);
}

/** The rows and the panel of one of several runs. */
export interface IDrawnRun {
  rows: RunData;
  /** Null until the run is known. */
  panel: PanelState | null;
}

/** A metric of the evaluations; its name is empty for the loss. */
interface IEvalMetric {
  name: string;
  label: string;
}

/** Place a run's points at steps on an axis; none are left if it does not know the axis. */
function placed(
  rows: RunData,
  points: readonly Point[],
  key: string
): readonly Point[] {
  const axis = axisOf(rows, key);
  return axis ? atSteps(points, rows.x, axis) : [];
}

/** The metrics that at least one of the runs was evaluated by, the loss first. */
export function comparedEvals(runs: readonly IDrawnRun[]): IEvalMetric[] {
  const found = new Map<string, string>();
  runs.forEach(({ panel }) => {
    if (panel?.evals?.length) {
      found.set('', 'loss');
    }
  });
  runs.forEach(({ panel }) =>
    panel?.eval_curves
      .filter(({ points }) => points.length > 0)
      .forEach(({ name, label }) => found.set(name, label))
  );
  return [...found].map(([name, label]) => ({ name, label }));
}

/** A metric of the evaluations of several runs, as `overlaid` gives a column. */
export function overlaidEvals(
  runs: readonly IDrawnRun[],
  name: string,
  { x: key, log }: CurveChoice = AS_IT_IS
): PlotData {
  const points = runs.map(({ rows, panel }) => {
    const curve = panel?.eval_curves.find(one => one.name === name);
    const own = name === '' ? (panel?.evals ?? []) : (curve?.points ?? []);
    return placed(rows, own, key);
  });
  const values = points.map(own => own.map(([, value]) => value));
  return union(
    points.map(own => own.map(([x]) => x)),
    log ? values.map(own => positive(own).values) : values
  );
}

/** A vertical line in the colour of its run. */
export interface IRunMark extends IMark {
  run: number;
  step: number;
}

/** Mark where runs were restarted, and from where on their loss is not a number. */
export function comparedMarks(
  runs: readonly IDrawnRun[],
  key: string
): IRunMark[] {
  return runs.flatMap(({ rows, panel }, run) => {
    const marks = panel ? marksOf(panel) : [];
    const color = COLORS[run % COLORS.length];
    return marks.flatMap(({ step, bad }) =>
      placed(rows, [[step, 0]], key).map(([x]) => ({
        x,
        bad,
        color,
        run,
        step
      }))
    );
  });
}

function union(
  steps: readonly ArrayLike<number>[],
  values: readonly Numbers[]
): PlotData {
  const at = steps.map(() => 0);
  const x: number[] = [];
  const columns: Numbers[] = steps.map(() => []);
  for (;;) {
    let next = Infinity;
    steps.forEach((mine, run) => {
      next = Math.min(next, mine[at[run]] ?? Infinity);
    });
    if (next === Infinity) {
      return [x, ...columns];
    }
    x.push(next);
    steps.forEach((mine, run) => {
      const here = mine[at[run]] === next;
      columns[run].push(here ? values[run][at[run]] : null);
      at[run] += here ? 1 : 0;
    });
  }
}

/**
 * The columns but the x axis that at least one of the runs has numbers in.
 */
export function comparedColumns(runs: readonly RunData[]): RunColumn[] {
  const columns = new Map<string, RunColumn>();
  runs.forEach(rows =>
    rows.columns
      .slice(1)
      .filter(({ name }) => !AXIS_COLUMNS.has(name) && rows.has(name))
      .forEach(column => columns.set(column.name, column))
  );
  return [...columns.values()];
}

/** Scale and suffix of a unit, as in the run's panel; numbers of another unit stay as they are. */
export function drawnAs(unit: RunColumn['unit']): {
  scale: number;
  suffix: string;
} {
  const drawn = UNITS[unit];
  return { scale: drawn?.scale ?? 1, suffix: drawn?.unit ?? '' };
}

/** The colours of llmops_kernel/views/comparison_tables.py. */
export const COLORS = [
  '#1976d2',
  '#e65100',
  '#388e3c',
  '#7b1fa2',
  '#00838f',
  '#c2185b',
  '#8d6e63',
  '#607d8b'
];
