// The rows of one run's charts. Contract: `columns` of the state (name, label, unit) say what the
// 32-bit floats of a row are; the "rows" message carries rows (columns.py, run_panel.py).

const NO_VALUES = new Float64Array(0);

/** Growing typed columns, so that a point costs no object. */
class Columns {
  constructor() {
    this.length = 0;
    this.all = [];
    this.values = {};
  }

  /** Takes the columns that the state describes; other ones than before forget all rows. */
  describe(columns) {
    const names = (list) => list.map(({ name }) => name).join();
    if (names(columns) === names(this.all)) return;
    this.all = columns;
    this.length = 0;
    this.values = Object.fromEntries(columns.map(({ name }) => [name, new Float64Array(256)]));
  }

  /** The first column is the x axis. */
  get x() {
    return this.all[0];
  }

  /**
   * Writes rows from index `first` on and forgets what was behind them.
   * @returns {boolean} false when rows before `first` are missing
   */
  write(first, view) {
    if (first > this.length) return false;
    const width = this.all.length;
    const rows = toFloats(view);
    if (!width) return !rows.length;
    const count = rows.length / width;
    this.reserve(first + count);
    this.all.forEach(({ name }, column) => {
      const target = this.values[name];
      for (let i = 0; i < count; i++) target[first + i] = rows[i * width + column];
    });
    this.length = first + count;
    return true;
  }

  reserve(length) {
    let capacity = this.values[this.x.name].length;
    if (length <= capacity) return;
    while (capacity < length) capacity *= 2;
    for (const { name } of this.all) {
      const grown = new Float64Array(capacity);
      grown.set(this.values[name]);
      this.values[name] = grown;
    }
  }

  /** @returns {(number | null)[] | Float64Array} NaN and infinity as null, which a chart leaves out */
  column(name, scale = 1) {
    const source = (this.values[name] ?? NO_VALUES).subarray(0, this.length);
    if (name === this.x?.name) return source;
    const result = new Array(source.length);
    for (let i = 0; i < source.length; i++) result[i] = Number.isFinite(source[i]) ? source[i] * scale : null;
    return result;
  }

  has(name) {
    const source = this.values[name];
    if (!source) return false;
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
