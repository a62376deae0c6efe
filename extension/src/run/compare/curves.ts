import { PlotData } from '../../panelModule';
import { Field, Rows } from '../rows';

/**
 * Columns over the union of all steps, as a chart wants them; null where a run has no value.
 * Steps of each run rise, so one pass over all of them is enough.
 */
export function overlaid(
  runs: readonly Rows[],
  field: Field,
  scale = 1
): PlotData {
  const steps = runs.map(rows => rows.column('step') as number[]);
  const values = runs.map(rows => rows.column(field, scale));
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

/** What two runs can be compared by. */
export const CURVES: readonly {
  field: Field;
  label: string;
  scale: number;
  unit: string;
}[] = [
  { field: 'loss', label: 'Loss', scale: 1, unit: '' },
  { field: 'mfu', label: 'MFU', scale: 100, unit: ' %' },
  {
    field: 'tokens_per_second',
    label: 'Tokens per second',
    scale: 1,
    unit: ''
  },
  { field: 'step_time_s', label: 'Step time', scale: 1, unit: ' s' },
  {
    field: 'peak_memory_bytes',
    label: 'Peak memory',
    scale: 1 / 2 ** 30,
    unit: ' GiB'
  }
];

/** As llmops_kernel/widgets/compare.py colours them. */
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
