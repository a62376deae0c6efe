/** Arithmetic on the numbers of a chart: pure functions. Unknown numbers are null or NaN. */

export type Numbers = ArrayLike<number | null>;
export type Range = [number, number];
/** x, or a step, and the value there. */
export type Point = readonly [number, number];

/** The most that a smoothed point keeps of a curve's past; 1 would never move. */
const MOST_SMOOTHING = 0.999;
/** Columns that stand on the x axis only. */
export const AXIS_COLUMNS = new Set([
  'epoch',
  'tokens',
  'utc_day',
  'utc_second'
]);
const DAY_S = 86400;

function isKnown(value: number | null | undefined): value is number {
  return value != null && Number.isFinite(value);
}

/**
 * Exponential moving average, corrected for its start at zero, as TensorBoard and W&B draw it
 * (Adam's bias correction, arxiv.org/abs/1412.6980): the first point is the first number, and a
 * constant curve stays as it is. An unknown number stays unknown and does not count.
 */
export function smoothed(values: Numbers, weight: number): (number | null)[] {
  const decay = Math.min(Math.max(weight, 0), MOST_SMOOTHING);
  const result = new Array<number | null>(values.length);
  let sum = 0;
  let share = 0; // What the numbers so far weigh together: 1 - decay ** count.
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (!isKnown(value)) {
      result[i] = null;
      continue;
    }
    sum = sum * decay + (1 - decay) * value;
    share = share * decay + (1 - decay);
    result[i] = sum / share;
  }
  return result;
}

/** Return what a log axis can show: zero and less become gaps, and are counted. */
export function positive(values: Numbers): {
  values: (number | null)[];
  numLeftOut: number;
} {
  let numLeftOut = 0;
  const result = new Array<number | null>(values.length);
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    result[i] = isKnown(value) && value > 0 ? value : null;
    if (isKnown(value) && value <= 0) {
      numLeftOut += 1;
    }
  }
  return { values: result, numLeftOut };
}

/** The sum of all numbers so far; null where one is unknown, since the sum is then too. */
function runningTotal(values: Numbers): Float64Array | null {
  const totals = new Float64Array(values.length);
  let sum = 0;
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (!isKnown(value)) {
      return null;
    }
    totals[i] = sum += value;
  }
  return totals;
}

/** Never falling: uPlot finds rows by bisection. Null where a number is unknown. */
function rising(values: Numbers): Float64Array | null {
  const result = new Float64Array(values.length);
  let highest = -Infinity;
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (!isKnown(value)) {
      return null;
    }
    result[i] = highest = Math.max(highest, value);
  }
  return result;
}

/** Hours since the first row; null where a time is unknown. */
function hoursSinceFirst(
  days: ArrayLike<number>,
  seconds: ArrayLike<number>
): Float64Array | null {
  const hours = new Float64Array(days.length);
  for (let i = 0; i < days.length; i++) {
    hours[i] = ((days[i] - days[0]) * DAY_S + seconds[i] - seconds[0]) / 3600;
  }
  return rising(hours);
}

/** The numbers of a column; an unknown one is NaN. */
type ColumnReader = (name: string) => ArrayLike<number>;

/** The x axes that a user can choose. */
export const X_AXES = [
  { key: 'step', label: 'step' },
  { key: 'tokens', label: 'tokens' },
  { key: 'time', label: 'hours since the first step' },
  { key: 'epoch', label: 'epoch' }
] as const;

export interface IXAxis {
  key: string;
  label: string;
  values: ArrayLike<number>;
}

/**
 * The numbers of the x axis `key`, and their name; null where the rows do not have them all.
 * `whole` is false where rows were left out, so that their tokens are not known.
 */
export function xValues(
  key: string,
  native: { label: string; values: ArrayLike<number> },
  of: ColumnReader,
  whole = true
): IXAxis | null {
  const axis = X_AXES.find(item => item.key === key);
  if (!axis || axis.key === 'step') {
    return { key: 'step', ...native };
  }
  let values: Float64Array | null;
  if (axis.key === 'tokens') {
    values = whole ? runningTotal(of('tokens')) : null;
  } else if (axis.key === 'time') {
    values = hoursSinceFirst(of('utc_day'), of('utc_second'));
  } else {
    values = rising(of('epoch'));
  }
  // Without such a column there are no numbers at all.
  return values?.length && values.length === native.values.length
    ? { key, label: axis.label, values }
    : null;
}

/** The row of a step: the last one that is not behind it; -1 before the first. */
function rowOfStep(steps: ArrayLike<number>, step: number): number {
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}

/** Place points at steps on an x axis; those before the first row stand at its place. */
export function atSteps(
  points: readonly Point[],
  steps: ArrayLike<number>,
  { key, values }: IXAxis
): readonly Point[] {
  if (key === 'step' || values.length === 0) {
    return points;
  }
  return points.map(([step, value]) => [
    values[Math.max(rowOfStep(steps, step), 0)],
    value
  ]);
}

/** A part of `bounds`, `factor` times as wide, with `at` in its place; null for the whole. */
export function zoomed(
  [low, high]: Range,
  factor: number,
  at: number,
  bounds: Range
): Range | null {
  const width = (high - low) * factor;
  if (width >= bounds[1] - bounds[0]) {
    return null;
  }
  if (!(width > (bounds[1] - bounds[0]) * 1e-6)) {
    return [low, high];
  }
  const share = (at - low) / (high - low);
  return within(at - width * share, width, bounds);
}

/** The same width, moved by a share of it, not beyond the bounds. */
export function panned(
  [low, high]: Range,
  share: number,
  bounds: Range
): Range {
  return within(low + (high - low) * share, high - low, bounds);
}

function within(low: number, width: number, bounds: Range): Range {
  const begin = Math.max(bounds[0], Math.min(low, bounds[1] - width));
  return [begin, begin + width];
}

/** The value at a row, or the last known one before it: curves that have fewer points than others. */
export function valueAt(
  values: ArrayLike<number | null | undefined>,
  index: number | null
): number | null {
  for (
    let i = Math.min(index ?? values.length - 1, values.length - 1);
    i >= 0;
    i--
  ) {
    const value = values[i];
    if (value != null) {
      return value;
    }
  }
  return null;
}

/** A table as CSV (RFC 4180); an unknown number is an empty cell. */
export function toCsv(
  names: readonly string[],
  columns: readonly Numbers[]
): string {
  const lines = [names.map(csvName).join(',')];
  for (let i = 0; i < columns[0].length; i++) {
    const cells = columns.map(column => {
      const value = column[i];
      return isKnown(value) ? String(value) : '';
    });
    lines.push(cells.join(','));
  }
  return lines.join('\r\n') + '\r\n';
}

/** A spreadsheet takes a name that begins like a formula for one. */
function csvName(name: string): string {
  const text = /^[=+\-@\t\r]/.test(name) ? `'${name}` : name;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** A user's choices for the charts of all runs. */
export interface IChartChoice {
  /** A key of `X_AXES`. */
  x: string;
  /** In 0..1; 0 draws the numbers as they are. */
  smoothing: number;
  log: boolean;
  /** Keys of the charts that are shown beside the usual ones. */
  more: string[];
}

/** A user's choices, of whatever was stored. */
export function chartChoice(stored: unknown): IChartChoice {
  const { smoothing, log, x, more } = (
    typeof stored === 'object' && stored ? stored : {}
  ) as Record<string, unknown>;
  return {
    smoothing:
      typeof smoothing === 'number' && isKnown(smoothing)
        ? Math.min(Math.max(smoothing, 0), MOST_SMOOTHING)
        : 0,
    log: log === true,
    x: X_AXES.find(({ key }) => key === x)?.key ?? 'step',
    more: Array.isArray(more)
      ? more.filter(key => typeof key === 'string').slice(0, 20)
      : []
  };
}
