/**
 * One row a step, in the order of llmops_kernel/widgets/columns.py.
 */
export const FIELDS = [
  'step',
  'loss',
  'mfu',
  'tokens_per_second',
  'peak_memory_bytes',
  'host_memory_bytes',
  'step_time_s'
] as const;

export type Field = (typeof FIELDS)[number];

const WIDTH = FIELDS.length;

/**
 * The rows of a run in one growing array: a step costs 28 bytes and no object.
 */
export class Rows {
  get count(): number {
    return this._count;
  }

  /**
   * Write rows from `first` on and forget what was behind them.
   * @returns false when rows before `first` are missing; then nothing is written
   */
  write(first: number, payload: ArrayBuffer | null): boolean {
    if (first > this._count) {
      return false;
    }
    const values = new Float32Array(payload ?? new ArrayBuffer(0));
    const length = first * WIDTH + values.length;
    if (length > this._values.length) {
      const grown = new Float32Array(Math.max(length, 2 * this._values.length));
      grown.set(this._values.subarray(0, this._count * WIDTH));
      this._values = grown;
    }
    this._values.set(values, first * WIDTH);
    this._count = length / WIDTH;
    return true;
  }

  /** As the panel takes them, from row `first` on. */
  view(first = 0): DataView {
    const { buffer, byteOffset } = this._values;
    const from = first * WIDTH * 4;
    return new DataView(
      buffer,
      byteOffset + from,
      this._count * WIDTH * 4 - from
    );
  }

  /** What is not known is null, which a chart leaves out. */
  column(field: Field, scale = 1): (number | null)[] {
    const column = FIELDS.indexOf(field);
    const found = new Array<number | null>(this._count);
    for (let row = 0; row < this._count; row++) {
      const value = this._values[row * WIDTH + column];
      found[row] = Number.isNaN(value) ? null : value * scale;
    }
    return found;
  }

  has(field: Field): boolean {
    const column = FIELDS.indexOf(field);
    for (let row = 0; row < this._count; row++) {
      if (!Number.isNaN(this._values[row * WIDTH + column])) {
        return true;
      }
    }
    return false;
  }

  private _values = new Float32Array(WIDTH * 256);
  private _count = 0;
}
