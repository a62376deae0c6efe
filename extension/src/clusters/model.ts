import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { IClusterModel, ILive, LiveMessage } from '../tokens';
import { ClusterRow, OperationInfo, Trouble } from '../wire';

/** Of operations that change a cluster; `what` is then its name. */
const KINDS = new Set(['up', 'suspend', 'resume', 'scale', 'delete']);

/**
 * All clusters of all providers, kept up to date by the topic `clusters`.
 */
export class ClusterModel implements IClusterModel {
  constructor(live: ILive) {
    this._subscription = live.subscribe('clusters', message =>
      this.take(message)
    );
  }

  get clusters(): readonly ClusterRow[] {
    return this._rows;
  }

  get isKnown(): boolean {
    return this._isKnown;
  }

  get trouble(): Trouble | null {
    return this._trouble;
  }

  get aheadS(): number {
    return this._aheadS;
  }

  get changed(): ISignal<IClusterModel, void> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._subscription.isDisposed;
  }

  find(name: string): ClusterRow | undefined {
    return this._rows.find(row => row.name === name);
  }

  dispose(): void {
    this._subscription.dispose();
    Signal.clearData(this);
  }

  private take({ kind, data }: LiveMessage): void {
    if (kind === 'trouble') {
      this._trouble = data;
    } else if (kind === 'fine') {
      this._trouble = null;
    } else if (kind === 'clusters') {
      this._rows = data.clusters;
      this._aheadS = data.now_s - Date.now() / 1000;
      this._isKnown = true;
    } else {
      return;
    }
    this._changed.emit();
  }

  private _rows: ClusterRow[] = [];
  private _aheadS = 0;
  private _isKnown = false;
  private _trouble: Trouble | null = null;
  private _changed = new Signal<IClusterModel, void>(this);
  private _subscription: IDisposable;
}

/**
 * Why an action cannot be done to a cluster now; empty when it can.
 */
export function whyNot(row: ClusterRow | undefined, action: string): string {
  if (!row?.info) {
    return 'Its state is not known yet';
  }
  if (row.doing) {
    return `It is busy: ${row.doing} is in progress`;
  }
  return row.info.actions[action] ?? 'Its provider does not support this';
}

/**
 * The state of a cluster; empty while it is not known, `deleted` when there is no such cluster.
 */
export function stateOf(model: IClusterModel, name: string): string {
  const row = model.find(name);
  if (!row) {
    return model.isKnown ? 'deleted' : '';
  }
  return row.info?.state ?? '';
}

/**
 * The newest operation of each cluster if it failed, its message is not closed, and the cluster
 * has not become ready since.
 */
export function failures(
  operations: readonly OperationInfo[],
  closed: ReadonlySet<string>,
  clusters: readonly ClusterRow[]
): OperationInfo[] {
  const seen = new Set<string>();
  return operations.filter(operation => {
    const { kind, what, state, id, ended_s } = operation;
    if (!KINDS.has(kind) || seen.has(what)) {
      return false;
    }
    seen.add(what);
    const info = clusters.find(row => row.name === what)?.info;
    const isPast =
      info?.state === 'ready' && (info.created_s ?? 0) > (ended_s ?? Infinity);
    return state === 'failed' && !closed.has(id) && !isPast;
  });
}

/**
 * Code that attaches to a cluster in a new notebook.
 */
export function attachCode(name: string): string {
  return `import llmops_kernel as llmops\n\ncluster = llmops.cluster(${JSON.stringify(name)})\ncluster`;
}
