// What is drawn of a run's numbers: pure functions, without a page. Unknown numbers are null or NaN.

/** How much of a curve's past a smoothed point keeps, at most; 1 would never move. */
const MOST_SMOOTHING = 0.999;
/** Columns that stand on the x axis only. */
const AXIS_COLUMNS = new Set(["epoch", "tokens", "utc_day", "utc_second"]);
const DAY_S = 86400;

const isKnown = (value) => value != null && Number.isFinite(value);

/**
 * Exponential moving average, corrected for its start at zero, as TensorBoard and W&B draw it
 * (Adam's bias correction, arxiv.org/abs/1412.6980): the first point is the first number, and a
 * constant curve stays as it is. An unknown number stays unknown and does not count.
 */
function smoothed(values, weight) {
  const keep = Math.min(Math.max(weight, 0), MOST_SMOOTHING);
  const result = new Array(values.length);
  let sum = 0;
  let share = 0; // What the numbers so far weigh together: 1 - keep ** count.
  for (let i = 0; i < values.length; i++) {
    if (!isKnown(values[i])) {
      result[i] = null;
      continue;
    }
    sum = sum * keep + (1 - keep) * values[i];
    share = share * keep + (1 - keep);
    result[i] = sum / share;
  }
  return result;
}

/** What a log axis can show: zero and less become gaps, and are counted. */
function positive(values) {
  let numLeftOut = 0;
  const shown = new Array(values.length);
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    shown[i] = isKnown(value) && value > 0 ? value : null;
    if (isKnown(value) && value <= 0) numLeftOut += 1;
  }
  return { values: shown, numLeftOut };
}

/** The sum of all numbers so far; null where one is unknown, since the sum is then too. */
function runningTotal(values) {
  const totals = new Float64Array(values.length);
  let sum = 0;
  for (let i = 0; i < values.length; i++) {
    if (!isKnown(values[i])) return null;
    totals[i] = sum += values[i];
  }
  return totals;
}

/** Never falling: uPlot finds rows by bisection. Null where a number is unknown. */
function rising(values) {
  const result = new Float64Array(values.length);
  let highest = -Infinity;
  for (let i = 0; i < values.length; i++) {
    if (!isKnown(values[i])) return null;
    result[i] = highest = Math.max(highest, values[i]);
  }
  return result;
}

/** Hours since the first row; null where a time is unknown. */
function hoursSinceFirst(days, seconds) {
  const hours = new Float64Array(days.length);
  for (let i = 0; i < days.length; i++) {
    hours[i] = ((days[i] - days[0]) * DAY_S + seconds[i] - seconds[0]) / 3600;
  }
  return rising(hours);
}

/** What can stand on the x axis; `of(column)` gives a column's numbers, `whole` is false where
 * rows were left out, so that their tokens are not known. */
const X_AXES = [
  { key: "step", label: "step", values: null },
  { key: "tokens", label: "tokens", values: (of, whole) => (whole ? runningTotal(of("tokens")) : null) },
  { key: "time", label: "hours since the first step", values: (of) => hoursSinceFirst(of("utc_day"), of("utc_second")) },
  { key: "epoch", label: "epoch", values: (of) => rising(of("epoch")) },
];

/** The numbers of the x axis `key`, and their name; null where the rows do not have them all. */
function xValues(key, native, of, whole = true) {
  const axis = X_AXES.find((item) => item.key === key);
  if (!axis?.values) return { key: "step", label: native.label, values: native.values };
  const values = native.values.length ? axis.values(of, whole) : null;
  return values && { key, label: axis.label, values };
}

/** The row of a step: the last one that is not behind it; -1 before the first. */
function rowOfStep(steps, step) {
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Where points at steps stand on another x axis; before the first row at its place. */
function atSteps(points, steps, x) {
  if (steps === x || !x.length) return points;
  return points.map(([step, value]) => [x[Math.max(rowOfStep(steps, step), 0)], value]);
}

/** A part of `bounds`, `factor` times as wide, with `at` in its place; null for the whole. */
function zoomed([low, high], factor, at, bounds) {
  const width = (high - low) * factor;
  if (width >= bounds[1] - bounds[0]) return null;
  if (!(width > (bounds[1] - bounds[0]) * 1e-6)) return [low, high];
  const share = (at - low) / (high - low);
  return within(at - width * share, width, bounds);
}

/** The same width, moved by a share of it, not beyond the bounds. */
function panned([low, high], share, bounds) {
  return within(low + (high - low) * share, high - low, bounds);
}

function within(low, width, bounds) {
  const begin = Math.max(bounds[0], Math.min(low, bounds[1] - width));
  return [begin, begin + width];
}

/** The value at a row, or the last known one before it: curves that have fewer points than others. */
function valueAt(values, index) {
  for (let i = Math.min(index ?? values.length - 1, values.length - 1); i >= 0; i--) {
    if (values[i] != null) return values[i];
  }
  return null;
}

/** A table as CSV (RFC 4180); an unknown number is an empty cell. */
function toCsv(names, columns) {
  const lines = [names.map(csvName).join(",")];
  for (let i = 0; i < columns[0].length; i++) {
    lines.push(columns.map((column) => (isKnown(column[i]) ? String(column[i]) : "")).join(","));
  }
  return lines.join("\r\n") + "\r\n";
}

/** A spreadsheet takes a name that begins like a formula for one. */
function csvName(name) {
  const text = /^[=+\-@\t\r]/.test(name) ? `'${name}` : name;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** A user's choices, of whatever was kept. */
function chartSettings(kept) {
  const { smoothing, log, x, more } = typeof kept === "object" && kept ? kept : {};
  return {
    smoothing: isKnown(smoothing) ? Math.min(Math.max(smoothing, 0), MOST_SMOOTHING) : 0,
    log: log === true,
    x: X_AXES.some(({ key }) => key === x) ? x : "step",
    more: Array.isArray(more) ? more.filter((key) => typeof key === "string").slice(0, 20) : [],
  };
}
