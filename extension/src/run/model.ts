import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { RunData } from '../panel/runData';
import { IFollowed, ILive, LiveMessage } from '../tokens';
import { RunRows, RunState, Trouble } from '../wire';

const LOST: Trouble = {
  message: 'The Jupyter server does not answer',
  remedy: 'check that it is still running; this page reconnects automatically',
  problems: []
};

/**
 * One run: its state and the rows of all steps.
 */
export class RunModel implements IFollowed {
  constructor(
    private live: ILive,
    readonly runId: string
  ) {
    this._subscription = this.subscribe();
    live.statusChanged.connect(this.onStatus, this);
  }

  readonly rows = new RunData();

  get state(): RunState | null {
    return this._state;
  }

  get isKnown(): boolean {
    return this._state !== null;
  }

  get trouble(): Trouble | null {
    return this._isLost ? LOST : this._trouble;
  }

  /** The state or the trouble is another. */
  get changed(): ISignal<RunModel, void> {
    return this._changed;
  }

  /** Rows from this number on are new. */
  get rowsChanged(): ISignal<RunModel, number> {
    return this._rowsChanged;
  }

  get isDisposed(): boolean {
    return this._subscription.isDisposed;
  }

  dispose(): void {
    this.live.statusChanged.disconnect(this.onStatus, this);
    this._subscription.dispose();
    Signal.clearData(this);
  }

  private onStatus(_: ILive, isConnected: boolean): void {
    this._isLost = !isConnected;
    this._changed.emit();
  }

  private subscribe(): IDisposable {
    return this.live.subscribe(
      `run/${this.runId}`,
      message => this.take(message),
      () => ({ generation: this._generation, rows: this.rows.count })
    );
  }

  private take({ kind, data, payload }: LiveMessage): void {
    if (kind === 'rows') {
      this.takeRows(data, payload);
    } else if (kind === 'state') {
      this._state = data;
      this._changed.emit();
    } else if (kind === 'trouble' || kind === 'fine') {
      this._trouble = kind === 'fine' ? null : data;
      this._changed.emit();
    }
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
      this._subscription.dispose();
      this._subscription = this.subscribe();
      return;
    }
    this._generation = generation;
    this._rowsChanged.emit(first);
  }

  private _state: RunState | null = null;
  private _generation = '';
  private _trouble: Trouble | null = null;
  private _isLost = false;
  private _changed = new Signal<RunModel, void>(this);
  private _rowsChanged = new Signal<RunModel, number>(this);
  private _subscription: IDisposable;
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
