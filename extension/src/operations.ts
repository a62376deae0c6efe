import { Notification } from '@jupyterlab/apputils';

import { ApiError, asTrouble } from './api';
import { ILive, IOperations, LiveMessage } from './tokens';
import { TopicModel, until } from './topicModel';
import { OperationInfo } from './wire';

const MESSAGE_LENGTH = 140;
const LOST = {
  message: 'The Jupyter server was restarted',
  remedy:
    'check the clusters and runs: an operation that had started may still be running'
};

/**
 * What runs on the server for longer than a request, from the topic `operations`.
 */
export class Operations extends TopicModel implements IOperations {
  constructor(live: ILive) {
    super();
    this.follow(live, 'operations');
  }

  get all(): readonly OperationInfo[] {
    return [...this._known.values()].sort((a, b) => b.started_s - a.started_s);
  }

  finished(operation: OperationInfo): Promise<OperationInfo> {
    // The answer of a request may arrive after the message that reports its end.
    if (!this._known.has(operation.id)) {
      this._known.set(operation.id, operation);
      this.emitChanged();
    }
    return until(this.changed, () => {
      const now = this._known.get(operation.id);
      if (now?.state === 'running') {
        return undefined;
      }
      if (now?.state === 'done') {
        return now;
      }
      throw new ApiError(500, now?.trouble ?? LOST);
    });
  }

  protected receive({ kind, data }: LiveMessage): boolean {
    if (kind !== 'operations') {
      return false;
    }
    const { operations, whole } = data;
    if (whole) {
      const there = new Set(operations.map(info => info.id));
      // What the server forgot by a restart will never end here.
      [...this._known.keys()]
        .filter(id => !there.has(id))
        .forEach(id => this._known.delete(id));
    }
    operations.forEach(info => this._known.set(info.id, info));
    return true;
  }

  private _known = new Map<string, OperationInfo>();
}

/**
 * Show a notification until an operation has ended. A failure is also for the caller to report.
 */
export function notified(
  end: Promise<OperationInfo>,
  pending: string,
  done: string
): Promise<OperationInfo> {
  const settled = end.then(() => null);
  settled.catch(() => undefined);
  Notification.promise(settled, {
    pending: { message: pending, options: { autoClose: false } },
    success: { message: () => done, options: { autoClose: 4000 } },
    error: {
      message: reason => asTrouble(reason).message.slice(0, MESSAGE_LENGTH),
      options: { autoClose: 8000 }
    }
  });
  return end;
}
