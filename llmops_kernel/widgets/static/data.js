// The curves of one run. Contract: FIELDS and the "rows" message of columns.py, run_panel.py.

const FIELDS = [
  "step", "loss", "mfu", "tokens_per_second", "peak_memory_bytes", "host_memory_bytes", "step_time_s",
];

/** Growing typed columns, so that a point costs no object. */
class Columns {
  constructor() {
    this.length = 0;
    this.values = Object.fromEntries(FIELDS.map((name) => [name, new Float64Array(256)]));
  }

  /**
   * Writes rows from index `first` on and forgets what was behind them.
   * @returns {boolean} false when rows before `first` are missing
   */
  write(first, view) {
    if (first > this.length) return false;
    const rows = toFloats(view);
    const count = rows.length / FIELDS.length;
    this.reserve(first + count);
    FIELDS.forEach((name, column) => {
      const target = this.values[name];
      for (let i = 0; i < count; i++) target[first + i] = rows[i * FIELDS.length + column];
    });
    this.length = first + count;
    return true;
  }

  reserve(length) {
    let capacity = this.values.step.length;
    if (length <= capacity) return;
    while (capacity < length) capacity *= 2;
    for (const name of FIELDS) {
      const grown = new Float64Array(capacity);
      grown.set(this.values[name]);
      this.values[name] = grown;
    }
  }

  /** @returns {(number | null)[] | Float64Array} NaN as null, which a chart leaves out */
  column(name, scale = 1) {
    const source = this.values[name].subarray(0, this.length);
    if (name === "step") return source;
    return Array.from(source, (value) => (Number.isNaN(value) ? null : value * scale));
  }

  has(name) {
    const source = this.values[name];
    for (let i = 0; i < this.length; i++) if (!Number.isNaN(source[i])) return true;
    return false;
  }
}

/** A message's buffer may start at any byte; a Float32Array may not. */
function toFloats(view) {
  if (!view || !view.byteLength) return new Float32Array(0);
  const bytes = new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength);
  return new Float32Array(bytes.slice().buffer);
}

/** Adds evaluation points to the loss curve's steps: three aligned columns for uPlot. */
function withEvals(columns, evals) {
  const curve = [columns.column("step"), columns.column("loss")];
  if (!evals.length) return [...curve, new Array(columns.length).fill(null)];
  const points = [evals.map((point) => point[0]), evals.map((point) => point[1])];
  return uPlot.join([curve, points]);
}
