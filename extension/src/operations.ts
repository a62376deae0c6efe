import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { ApiError } from './api';
import { ILive, LiveMessage, IOperations } from './tokens';
import { OperationInfo } from './wire';

export class Operations implements IOperations {
  constructor(live: ILive) {
    this._subscription = live.subscribe('operations', message =>
      this.take(message)
    );
  }

  get all(): readonly OperationInfo[] {
    return [...this._known.values()].sort((a, b) => b.started_s - a.started_s);
  }

  get changed(): ISignal<IOperations, OperationInfo[]> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._subscription.isDisposed;
  }

  dispose(): void {
    this._subscription.dispose();
    Signal.clearData(this);
  }

  finished(operation: OperationInfo): Promise<OperationInfo> {
    this.put(operation);
    return new Promise((resolve, reject) => {
      const look = (): boolean => {
        const now = this._known.get(operation.id);
        if (now?.state === 'running') {
          return false;
        }
        if (now?.state === 'done') {
          resolve(now);
        } else {
          reject(new ApiError(500, now?.trouble ?? LOST));
        }
        return true;
      };
      if (!look()) {
        const listen = () => {
          if (look()) {
            this._changed.disconnect(listen);
          }
        };
        this._changed.connect(listen);
      }
    });
  }

  private take({ kind, data }: LiveMessage): void {
    if (kind !== 'operations') {
      return;
    }
    const changed = data.operations;
    if (data.whole) {
      const there = new Set(changed.map(info => info.id));
      // What the server forgot by a restart will never end here.
      [...this._known.keys()]
        .filter(id => !there.has(id))
        .forEach(id => this._known.delete(id));
    }
    changed.forEach(info => this._known.set(info.id, info));
    this._changed.emit(changed);
  }

  /** The answer of a request may arrive after the message that reports its end. */
  private put(info: OperationInfo): void {
    if (!this._known.has(info.id)) {
      this._known.set(info.id, info);
      this._changed.emit([info]);
    }
  }

  private _known = new Map<string, OperationInfo>();
  private _changed = new Signal<IOperations, OperationInfo[]>(this);
  private _subscription: IDisposable;
}

const LOST = {
  message: 'The Jupyter server was restarted',
  remedy:
    'check the clusters and runs: an operation that had started may still be running'
};
