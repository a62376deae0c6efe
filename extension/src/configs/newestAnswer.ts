import { ISignal, Signal } from '@lumino/signaling';

/**
 * A model of answers about one config. The newest question wins: an earlier one is given up.
 */
export abstract class NewestAnswer {
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  isBusy = false;

  dispose(): void {
    this._abort.abort();
    Signal.clearData(this);
  }

  /** Give up the earlier question. */
  protected begin(): AbortSignal {
    this._abort.abort();
    this._abort = new AbortController();
    return this._abort.signal;
  }

  /** Take an answer, unless a newer question was asked since. */
  protected settle(signal: AbortSignal, apply: () => void): void {
    if (!signal.aborted) {
      apply();
      this.isBusy = false;
      this._changed.emit();
    }
  }

  protected emitChanged(): void {
    this._changed.emit();
  }

  private _abort = new AbortController();
  private _changed = new Signal<this, void>(this);
}
