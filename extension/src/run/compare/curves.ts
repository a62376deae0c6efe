import { UNITS } from '../../generated/panel';
import { PlotData } from '../../panelModule';
import { RunColumn } from '../../wire';
import { Rows } from '../rows';

/**
 * A column of several runs over the union of their x values, as a chart takes it; null where
 * a run has no value. The x values of each run rise, so one pass over all of them is enough.
 */
export function overlaid(
  runs: readonly Rows[],
  name: string,
  scale = 1
): PlotData {
  const steps = runs.map(rows => rows.x);
  const values = runs.map(rows => rows.column(name, scale));
  const at = runs.map(() => 0);
  const x: number[] = [];
  const columns: (number | null)[][] = runs.map(() => []);
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
      .filter(({ name }) => rows.has(name))
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
