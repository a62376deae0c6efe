import { ISignal, Signal } from '@lumino/signaling';

import { RunData } from '../panel/runData';
import { ILive, LiveMessage } from '../tokens';
import { TopicModel } from '../topicModel';
import { RunRows, RunState, Trouble } from '../wire';

const LOST: Trouble = {
  message: 'The Jupyter server does not answer',
  remedy: 'check that it is still running; this page reconnects automatically',
  problems: []
};

/**
 * One run: its state and the rows of all steps.
 */
export class RunModel extends TopicModel {
  constructor(
    private live: ILive,
    readonly runId: string
  ) {
    super();
    this.subscribe();
    live.statusChanged.connect(this.onStatus, this);
  }

  readonly rows = new RunData();

  get state(): RunState | null {
    return this._state;
  }

  override get trouble(): Trouble | null {
    return this._isLost ? LOST : super.trouble;
  }

  /** Rows from this number on are new. */
  get rowsChanged(): ISignal<RunModel, number> {
    return this._rowsChanged;
  }

  override dispose(): void {
    this.live.statusChanged.disconnect(this.onStatus, this);
    super.dispose();
  }

  private onStatus(_: ILive, isConnected: boolean): void {
    this._isLost = !isConnected;
    this.emitChanged();
  }

  private subscribe(): void {
    this.follow(this.live, `run/${this.runId}`, () => ({
      generation: this._generation,
      rows: this.rows.count
    }));
  }

  protected receive({ kind, data, payload }: LiveMessage): boolean {
    if (kind === 'rows') {
      this.takeRows(data, payload);
    } else if (kind === 'state') {
      this._state = data;
    }
    return kind === 'state';
  }

  private takeRows(
    { columns, first, generation }: RunRows,
    payload: ArrayBuffer | null
  ): void {
    this.rows.describe(columns);
    if (!this.rows.write(first, payload)) {
      // Rows are missing: start again without any.
      this.rows.clear();
      this._generation = '';
      this.subscribe();
      return;
    }
    this._generation = generation;
    this._rowsChanged.emit(first);
  }

  private _state: RunState | null = null;
  private _generation = '';
  private _isLost = false;
  private _rowsChanged = new Signal<RunModel, number>(this);
}

/**
 * One model a run, however many tabs show it; gone with the last of them.
 */
export class RunModels {
  constructor(private live: ILive) {}

  take(runId: string): RunModel {
    const known = this._models.get(runId);
    if (known) {
      known.users += 1;
      return known.model;
    }
    const model = new RunModel(this.live, runId);
    this._models.set(runId, { model, users: 1 });
    return model;
  }

  giveBack(model: RunModel): void {
    const known = this._models.get(model.runId);
    if (known?.model === model && --known.users === 0) {
      this._models.delete(model.runId);
      model.dispose();
    }
  }

  private _models = new Map<string, { model: RunModel; users: number }>();
}
