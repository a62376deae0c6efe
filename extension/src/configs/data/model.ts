import { ISignal, Signal } from '@lumino/signaling';

import { asTrouble } from '../../api';
import {
  ConfigData,
  DataBody,
  DataRow,
  DataRowBody,
  Trouble
} from '../../wire';

export type Side = ConfigData['side'];

/** What is asked of the server. */
export interface IDataRequests {
  /** The text as it is edited now, or as it is saved. */
  text: () => Promise<string>;
  data: (body: DataBody, signal: AbortSignal) => Promise<ConfigData>;
  row: (body: DataRowBody, signal: AbortSignal) => Promise<DataRow>;
}

/**
 * The data of one config. The newest question wins: an earlier one is given up.
 */
export class DataModel {
  constructor(
    readonly path: string,
    private requests: IDataRequests
  ) {}

  get changed(): ISignal<DataModel, void> {
    return this._changed;
  }

  /** What was found last; it stays in sight while it is looked for again. */
  data: ConfigData | null = null;
  /** The one row that was asked for. */
  row: DataRow | null = null;
  trouble: Trouble | null = null;
  rowTrouble: Trouble | null = null;
  isBusy = false;
  isRowBusy = false;
  side: Side = 'train';

  async load(side: Side = this.side): Promise<void> {
    const signal = this.begin();
    this.side = side;
    this.isBusy = true;
    this.isRowBusy = false;
    this.trouble = this.rowTrouble = this.row = null;
    this._changed.emit();
    try {
      const text = await this.requests.text();
      const body = { path: this.path, text, side };
      const data = await this.requests.data(body, signal);
      this.settle(signal, () => (this.data = data));
    } catch (error) {
      this.settle(signal, () => (this.trouble = asTrouble(error)));
    }
  }

  async showRow(row: number): Promise<void> {
    if (this.isBusy) {
      return;
    }
    const signal = this.begin();
    this.isRowBusy = true;
    this.rowTrouble = null;
    this._changed.emit();
    try {
      const text = await this.requests.text();
      const body = { path: this.path, text, side: this.side, row };
      const found = await this.requests.row(body, signal);
      this.settle(signal, () => (this.row = found));
    } catch (error) {
      this.settle(signal, () => (this.rowTrouble = asTrouble(error)));
    }
  }

  dispose(): void {
    this._abort.abort();
    Signal.clearData(this);
  }

  private begin(): AbortSignal {
    this._abort.abort();
    this._abort = new AbortController();
    return this._abort.signal;
  }

  private settle(signal: AbortSignal, apply: () => void): void {
    if (!signal.aborted) {
      apply();
      this.isBusy = this.isRowBusy = false;
      this._changed.emit();
    }
  }

  private _abort = new AbortController();
  private _changed = new Signal<DataModel, void>(this);
}
