import {
  AXIS_COLUMNS,
  UNITS,
  positive,
  smoothed,
  xValues
} from '../../generated/panel';
import { PlotData } from '../../panelModule';
import { RunColumn } from '../../wire';
import { Rows } from '../rows';

/** What can stand on the x axis; the keys are those of the run's panel. */
export const X_KEYS = ['step', 'tokens', 'time', 'epoch'] as const;

export interface IChartChoice {
  x: string;
  /** In 0..1; 0 draws the numbers as they are. */
  smoothing: number;
  log: boolean;
}

const AS_IT_IS: IChartChoice = { x: 'step', smoothing: 0, log: false };
type Numbers = (number | null)[];

/** A run's x values on an axis; null where it does not know them all. */
export function xOf(rows: Rows, key: string): ArrayLike<number> | null {
  const native = { label: '', values: rows.x };
  const found = xValues(key, native, (name: string) => rows.column(name));
  return (found?.values as ArrayLike<number> | undefined) ?? null;
}

/**
 * A column of several runs over the union of their x values, as a chart takes it; null where
 * a run has no value. The x values of each run rise, so one pass over all of them is enough.
 * Where it is smoothed, a second column a run follows behind those of all runs.
 */
export function overlaid(
  runs: readonly Rows[],
  name: string,
  scale = 1,
  { x: key, smoothing, log }: IChartChoice = AS_IT_IS
): PlotData {
  const own = runs.map(rows => xOf(rows, key));
  const raw = runs.map(rows => rows.column(name, scale));
  const all: Numbers[] = smoothing
    ? [...raw, ...raw.map(numbers => smoothed(numbers, smoothing) as Numbers)]
    : raw;
  // A run that does not know the axis has no place on it.
  const steps = all.map((_, index) => own[index % runs.length] ?? []);
  const values = log
    ? all.map(numbers => positive(numbers).values as Numbers)
    : all;
  return union(steps, values);
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
export function comparedColumns(runs: readonly Rows[]): RunColumn[] {
  const columns = new Map<string, RunColumn>();
  runs.forEach(rows =>
    rows.columns
      .slice(1)
      .filter(({ name }) => !AXIS_COLUMNS.has(name) && rows.has(name))
      .forEach(column => columns.set(column.name, column))
  );
  return [...columns.values()];
}

/** How numbers of a unit are drawn, as in the run's panel; of another unit as they are. */
export function drawnAs(unit: RunColumn['unit']): {
  scale: number;
  suffix: string;
} {
  const units = UNITS as Partial<
    Record<string, { scale: number; unit: string }>
  >;
  const drawn = units[unit];
  return { scale: drawn?.scale ?? 1, suffix: drawn?.unit ?? '' };
}

/** The colours of llmops_kernel/views/compare.py. */
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
