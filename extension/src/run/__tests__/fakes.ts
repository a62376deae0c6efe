import { DisposableDelegate, IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import { ILive, ILiveMessage, Json } from '../../tokens';
import { FIELDS } from '../rows';

interface ISubscription {
  topic: string;
  listener: (message: ILiveMessage) => void;
  have?: () => Json;
}

/**
 * A live connection on which a test speaks for the server.
 */
export class FakeLive implements ILive {
  readonly isConnected = true;
  readonly statusChanged = new Signal<ILive, boolean>(this);
  readonly isDisposed = false;
  subscriptions: ISubscription[] = [];

  dispose(): void {}

  subscribe(
    topic: string,
    listener: (message: ILiveMessage) => void,
    have?: () => Json
  ): IDisposable {
    const subscription = { topic, listener, have };
    this.subscriptions.push(subscription);
    return new DisposableDelegate(() => {
      this.subscriptions = this.subscriptions.filter(s => s !== subscription);
    });
  }

  say(
    topic: string,
    kind: string,
    data: Json,
    payload: ArrayBuffer | null = null
  ): void {
    this.subscriptions
      .filter(s => s.topic === topic)
      .forEach(s => s.listener({ kind, data, payload }));
  }
}

/** Rows as the server packs them: step and loss known, the rest not. */
export function packed(
  rows: readonly (readonly [number, number])[]
): ArrayBuffer {
  const values = new Float32Array(rows.length * FIELDS.length).fill(NaN);
  rows.forEach(([step, loss], index) => {
    values.set([step, loss], index * FIELDS.length);
  });
  return values.buffer;
}
