import { IClusterModel, ILive, LiveMessage } from '../tokens';
import { TopicModel } from '../topicModel';
import { ClusterRow, OperationInfo } from '../wire';

/** Of operations that change a cluster; `what` is then its name. */
const KINDS = new Set(['up', 'suspend', 'resume', 'scale', 'delete']);

/**
 * All clusters of all providers, kept up to date by the topic `clusters`.
 */
export class ClusterModel extends TopicModel implements IClusterModel {
  constructor(live: ILive) {
    super();
    this.follow(live, 'clusters');
  }

  get clusters(): readonly ClusterRow[] {
    return this._rows;
  }

  get aheadS(): number {
    return this._aheadS;
  }

  find(name: string): ClusterRow | undefined {
    return this._rows.find(row => row.name === name);
  }

  protected receive({ kind, data }: LiveMessage): boolean {
    if (kind !== 'clusters') {
      return false;
    }
    this._rows = data.clusters;
    this._aheadS = data.now_s - Date.now() / 1000;
    return true;
  }

  private _rows: ClusterRow[] = [];
  private _aheadS = 0;
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
