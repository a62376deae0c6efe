import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { IFollowed, ILive, Json, LiveMessage } from './tokens';
import { Trouble } from './wire';

/**
 * A model of what one live topic says.
 */
export abstract class TopicModel implements IFollowed {
  get isKnown(): boolean {
    return this._isKnown;
  }

  get trouble(): Trouble | null {
    return this._trouble;
  }

  /** The data or the trouble are others. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._subscription?.isDisposed ?? false;
  }

  dispose(): void {
    this._subscription?.dispose();
    Signal.clearData(this);
  }

  /** Follow a topic; once more, it begins again. `have` says what need not be sent. */
  protected follow(live: ILive, topic: string, have?: () => Json): void {
    this._subscription?.dispose();
    const take = (message: LiveMessage) => this.take(message);
    this._subscription = live.subscribe(topic, take, have);
  }

  protected emitChanged(): void {
    this._changed.emit();
  }

  /** Take the data of a message; false where `changed` need not be emitted. */
  protected abstract receive(message: LiveMessage): boolean;

  private take(message: LiveMessage): void {
    if (message.kind === 'trouble') {
      this._trouble = message.data;
    } else if (message.kind === 'fine') {
      this._trouble = null;
    } else if (this.receive(message)) {
      this._isKnown = true;
    } else {
      return;
    }
    this.emitChanged();
  }

  private _isKnown = false;
  private _trouble: Trouble | null = null;
  private _changed = new Signal<this, void>(this);
  private _subscription: IDisposable | null = null;
}

/**
 * Wait until `look` returns something, after each change; reject when it throws.
 */
export function until<T>(
  changed: ISignal<unknown, unknown>,
  look: () => T | undefined
): Promise<T> {
  return new Promise((resolve, reject) => {
    const listen = () => {
      try {
        const found = look();
        if (found === undefined) {
          return;
        }
        resolve(found);
      } catch (error) {
        reject(error);
      }
      changed.disconnect(listen);
    };
    changed.connect(listen);
    listen();
  });
}
