import { asTrouble } from '../../api';
import {
  ConfigData,
  DataBody,
  DataRow,
  DataRowBody,
  Trouble
} from '../../wire';
import { NewestAnswer } from '../newestAnswer';

export type Side = ConfigData['side'];

/** What is asked of the server. */
export interface IDataRequests {
  /** The text as it is edited now, or as it is saved. */
  text: () => Promise<string>;
  data: (body: DataBody, signal: AbortSignal) => Promise<ConfigData>;
  row: (body: DataRowBody, signal: AbortSignal) => Promise<DataRow>;
}

/**
 * The data of one config.
 */
export class DataModel extends NewestAnswer {
  constructor(
    readonly path: string,
    private requests: IDataRequests
  ) {
    super();
  }

  /** What was found last; it stays in sight while it is looked for again. */
  data: ConfigData | null = null;
  /** The one row that was asked for. */
  row: DataRow | null = null;
  trouble: Trouble | null = null;
  rowTrouble: Trouble | null = null;
  isRowBusy = false;
  side: Side = 'train';

  async load(side: Side = this.side): Promise<void> {
    const signal = this.begin();
    this.side = side;
    this.isBusy = true;
    this.isRowBusy = false;
    this.trouble = this.rowTrouble = this.row = null;
    this.emitChanged();
    try {
      const text = await this.requests.text();
      const body = { path: this.path, text, side };
      const data = await this.requests.data(body, signal);
      this.settle(signal, () => this.take({ data }));
    } catch (error) {
      this.settle(signal, () => this.take({ trouble: asTrouble(error) }));
    }
  }

  async showRow(row: number): Promise<void> {
    if (this.isBusy) {
      return;
    }
    const signal = this.begin();
    this.isRowBusy = true;
    this.rowTrouble = null;
    this.emitChanged();
    try {
      const text = await this.requests.text();
      const body = { path: this.path, text, side: this.side, row };
      const found = await this.requests.row(body, signal);
      this.settle(signal, () => this.take({ row: found }));
    } catch (error) {
      this.settle(signal, () => this.take({ rowTrouble: asTrouble(error) }));
    }
  }

  private take(
    answer: Partial<Pick<DataModel, 'data' | 'row' | 'trouble' | 'rowTrouble'>>
  ): void {
    Object.assign(this, answer);
    this.isRowBusy = false;
  }
}
