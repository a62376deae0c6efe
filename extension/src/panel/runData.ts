import { RunColumn } from '../wire';

const NO_VALUES = new Float64Array(0);
const FIRST_CAPACITY = 256;

type Packed = ArrayBuffer | DataView<ArrayBuffer> | null | undefined;

/**
 * The rows of a run's charts: a typed array a column, which grows, so that a number costs no
 * object. The columns are those of the run's kind; the first one is the x axis.
 */
export class RunData {
  /** The number of rows. */
  get count(): number {
    return this._count;
  }

  get columns(): readonly RunColumn[] {
    return this._columns;
  }

  /** The values of the x axis. */
  get x(): Float64Array {
    return this.values(this._columns[0]?.name);
  }

  /** Say what a row consists of; other columns than before forget all rows. */
  describe(columns: readonly RunColumn[]): void {
    if (namesOf(columns) !== namesOf(this._columns)) {
      this._columns = columns;
      this.clear();
    }
  }

  /** Forget all rows. */
  clear(): void {
    this._count = 0;
    this._values = new Map(
      this._columns.map(({ name }) => [name, new Float64Array(FIRST_CAPACITY)])
    );
  }

  /**
   * Write rows, 32-bit floats as the server packs them, from row `first` on, and forget what was
   * behind them.
   * @returns false when rows before `first` are missing; then nothing is written
   */
  write(first: number, packed: Packed): boolean {
    if (first > this._count) {
      return false;
    }
    const rows = floatsOf(packed);
    const width = this._columns.length;
    if (width === 0) {
      return rows.length === 0;
    }
    const count = Math.floor(rows.length / width);
    this._columns.forEach(({ name }, column) => {
      const target = this.reserve(name, first + count);
      for (let row = 0; row < count; row++) {
        target[first + row] = rows[row * width + column];
      }
    });
    this._count = first + count;
    return true;
  }

  /** The numbers of a column; NaN where one is unknown, none without such a column. */
  values(name: string): Float64Array {
    return (this._values.get(name) ?? NO_VALUES).subarray(0, this._count);
  }

  /** The numbers of a column as a chart takes them: null where one is unknown or infinite. */
  column(name: string, scale = 1): (number | null)[] {
    const numbers = new Array<number | null>(this._count);
    const values = this._values.get(name);
    if (!values) {
      return numbers.fill(null);
    }
    for (let row = 0; row < numbers.length; row++) {
      const value = values[row];
      numbers[row] = Number.isFinite(value) ? value * scale : null;
    }
    return numbers;
  }

  /** True if any row has a number in that column. */
  has(name: string): boolean {
    const values = this.values(name);
    for (let row = 0; row < values.length; row++) {
      if (!Number.isNaN(values[row])) {
        return true;
      }
    }
    return false;
  }

  private reserve(name: string, count: number): Float64Array {
    const values = this._values.get(name) ?? NO_VALUES;
    if (count <= values.length) {
      return values;
    }
    let capacity = Math.max(values.length, FIRST_CAPACITY);
    while (capacity < count) {
      capacity *= 2;
    }
    const grown = new Float64Array(capacity);
    grown.set(values.subarray(0, this._count));
    this._values.set(name, grown);
    return grown;
  }

  private _columns: readonly RunColumn[] = [];
  private _values = new Map<string, Float64Array>();
  private _count = 0;
}

/** A message's bytes may begin anywhere; a Float32Array may not. */
function floatsOf(packed: Packed): Float32Array {
  if (!packed || !ArrayBuffer.isView(packed)) {
    return new Float32Array(packed ?? new ArrayBuffer(0));
  }
  const { buffer, byteOffset, byteLength } = packed;
  return new Float32Array(buffer.slice(byteOffset, byteOffset + byteLength));
}

function namesOf(columns: readonly RunColumn[]): string {
  return columns.map(({ name }) => name).join();
}
