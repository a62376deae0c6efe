import { RunColumn } from '../wire';

/**
 * The rows of a run in one growing array: a number costs four bytes and no object.
 * The columns are those of the run's kind; the first one is the x axis.
 */
export class Rows {
  get count(): number {
    return this._count;
  }

  get columns(): readonly RunColumn[] {
    return this._columns;
  }

  /** Values of the x axis. */
  get x(): number[] {
    const { name } = this._columns[0] ?? { name: '' };
    return this.column(name) as number[];
  }

  /**
   * Write rows from `first` on and forget what was behind them.
   * @returns false when rows before `first` are missing; then nothing is written
   */
  write(
    columns: readonly RunColumn[],
    first: number,
    payload: ArrayBuffer | null
  ): boolean {
    const isSame = namesOf(columns) === namesOf(this._columns);
    if (first > (isSame ? this._count : 0)) {
      return false;
    }
    this._columns = columns;
    const width = columns.length;
    const values = new Float32Array(payload ?? new ArrayBuffer(0));
    const length = first * width + values.length;
    if (length > this._values.length) {
      const grown = new Float32Array(Math.max(length, 2 * this._values.length));
      grown.set(this._values.subarray(0, first * width));
      this._values = grown;
    }
    this._values.set(values, first * width);
    this._count = width ? length / width : 0;
    return true;
  }

  /** As the panel takes them, from row `first` on. */
  view(first = 0): DataView {
    const { buffer, byteOffset } = this._values;
    const rowBytes = this._columns.length * 4;
    return new DataView(
      buffer,
      byteOffset + first * rowBytes,
      (this._count - first) * rowBytes
    );
  }

  /** The numbers of a column; null where one is unknown, all null without such a column. */
  column(name: string, scale = 1): (number | null)[] {
    const column = this.indexOf(name);
    const width = this._columns.length;
    const numbers = new Array<number | null>(this._count).fill(null);
    for (let row = 0; column >= 0 && row < this._count; row++) {
      const value = this._values[row * width + column];
      numbers[row] = Number.isNaN(value) ? null : value * scale;
    }
    return numbers;
  }

  /** Whether any row has a number in that column. */
  has(name: string): boolean {
    const column = this.indexOf(name);
    const width = this._columns.length;
    for (let row = 0; column >= 0 && row < this._count; row++) {
      if (!Number.isNaN(this._values[row * width + column])) {
        return true;
      }
    }
    return false;
  }

  private indexOf(name: string): number {
    return this._columns.findIndex(column => column.name === name);
  }

  private _columns: readonly RunColumn[] = [];
  private _values = new Float32Array(2048);
  private _count = 0;
}

function namesOf(columns: readonly RunColumn[]): string {
  return columns.map(({ name }) => name).join();
}
