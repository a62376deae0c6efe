import { ISignal, Signal } from '@lumino/signaling';

import { IClusterModel, IPreferences } from '../tokens';
import { ClusterRow } from '../wire';

const KEY = 'llmops:last-cluster';

/**
 * The cluster that the next submission goes to: one choice for all editors and dialogs.
 */
export class ClusterChoice {
  constructor(
    readonly model: IClusterModel,
    private preferences: IPreferences,
    private memory: Pick<Storage, 'getItem' | 'setItem'> = window.localStorage
  ) {
    model.changed.connect(() => this._changed.emit());
    preferences.changed.connect(() => this._changed.emit());
  }

  get changed(): ISignal<ClusterChoice, void> {
    return this._changed;
  }

  /** Null while there is no cluster. */
  get name(): string | null {
    return chosen(this.model.clusters, [
      this._picked,
      this.preferences.defaultCluster,
      this.memory.getItem(KEY) ?? ''
    ]);
  }

  pick(name: string): void {
    this._picked = name;
    this._changed.emit();
  }

  /** Remember what was used, for the next page. */
  used(name: string): void {
    this.memory.setItem(KEY, name);
  }

  private _picked = '';
  private _changed = new Signal<ClusterChoice, void>(this);
}

/** The first wish that is there, else one that is ready, else any. */
export function chosen(
  rows: readonly ClusterRow[],
  wishes: readonly string[]
): string | null {
  const there = wishes.find(wish => rows.some(row => row.name === wish));
  const ready = rows.find(row => row.info?.state === 'ready');
  return there ?? ready?.name ?? rows[0]?.name ?? null;
}

/** What a chooser shows of a cluster: its name, and its state where that matters. */
export function shownAs(row: ClusterRow): string {
  const state = row.doing || row.info?.state || '…';
  return state === 'ready' ? row.name : `${row.name} (${state})`;
}
