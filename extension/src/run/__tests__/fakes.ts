import { DisposableDelegate, IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import { ILive, LiveMessage, Json } from '../../tokens';
import { RunColumn } from '../../wire';

interface ISubscription {
  topic: string;
  listener: (message: LiveMessage) => void;
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
    listener: (message: LiveMessage) => void,
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

/** Columns of a kind that a test makes up. */
export const COLUMNS: RunColumn[] = [
  { name: 'epoch', label: 'epoch', unit: 'count' },
  { name: 'reward', label: 'reward', unit: 'number' },
  { name: 'idle', label: 'idle', unit: 'fraction' }
];

/** Rows as the server packs them: epoch and reward known, the rest not. */
export function packed(
  rows: readonly (readonly [number, number])[]
): ArrayBuffer {
  const values = new Float32Array(rows.length * COLUMNS.length).fill(NaN);
  rows.forEach(([step, loss], index) => {
    values.set([step, loss], index * COLUMNS.length);
  });
  return values.buffer;
}
