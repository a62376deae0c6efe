import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { ILive, IRunsModel, LiveMessage } from '../tokens';
import { DASH } from '../ui/format';
import { RunRow, RunsNews, Trouble } from '../wire';

const ENDED = new Set(['SUCCEEDED', 'FAILED', 'STOPPED']);

export function hasEnded(run: RunRow): boolean {
  return ENDED.has(run.state);
}

/**
 * Figures as `loss 1.234`, `123 rows/s`; unknown ones are left out.
 */
export function knownFigures(run: RunRow, only = { listed: false }): string[] {
  return run.figures
    .filter(({ text, listed }) => text !== DASH && (listed || !only.listed))
    .map(({ label, text, unit }) =>
      // A rate's label is its unit: `123 rows/s`.
      unit === 'per_second' ? `${text} ${label}` : `${label} ${text}`
    );
}

/**
 * All runs of the store, kept up to date by the topic `runs`.
 */
export class RunsModel implements IRunsModel {
  constructor(
    live: ILive,
    private ask: (runId: string) => Promise<RunRow>
  ) {
    this._subscription = live.subscribe('runs', message => this.take(message));
  }

  get runs(): readonly RunRow[] {
    return this._sorted;
  }

  get isKnown(): boolean {
    return this._isKnown;
  }

  get trouble(): Trouble | null {
    return this._trouble;
  }

  get changed(): ISignal<IRunsModel, void> {
    return this._changed;
  }

  get ended(): ISignal<IRunsModel, RunRow> {
    return this._ended;
  }

  get selected(): ReadonlySet<string> {
    return this._selected;
  }

  get isDisposed(): boolean {
    return this._subscription.isDisposed;
  }

  find(runId: string): RunRow | undefined {
    return this._rows.get(runId) ?? this._older.get(runId);
  }

  async read(runId: string): Promise<RunRow> {
    const listed = this._rows.get(runId);
    if (listed) {
      return listed;
    }
    try {
      const row = await this.ask(runId);
      this.learn(row);
      return row;
    } catch (error) {
      this._older.delete(runId);
      throw error;
    }
  }

  learn(row: RunRow): void {
    if (this._rows.has(row.run_id)) {
      return;
    }
    const known = this._older.get(row.run_id);
    this._older.set(row.run_id, row);
    if (JSON.stringify(known) !== JSON.stringify(row)) {
      this._changed.emit();
    }
  }

  select(runId: string, isSelected: boolean): void {
    if (isSelected) {
      this._selected.add(runId);
    } else {
      this._selected.delete(runId);
    }
    this._changed.emit();
  }

  clearSelection(): void {
    this._selected.clear();
    this._changed.emit();
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
    } else if (kind === 'runs') {
      this.update(data);
    } else {
      return;
    }
    this._changed.emit();
  }

  private update({ runs: rows, removed, whole, reading }: RunsNews): void {
    const before = this._rows;
    this._rows = new Map(whole ? [] : before);
    removed.forEach(runId => this._rows.delete(runId));
    rows.forEach(row => {
      this._rows.set(row.run_id, row);
      this._older.delete(row.run_id);
    });
    this._selected.forEach(runId => {
      if (!this._rows.has(runId)) {
        this._selected.delete(runId);
      }
    });
    this._sorted = [...this._rows.values()].sort(
      (a, b) => b.created_s - a.created_s || (a.run_id < b.run_id ? 1 : -1)
    );
    const wasKnown = this._isKnown && !reading;
    this._isKnown = true;
    if (wasKnown) {
      // A run that had ended before this page was opened is not reported.
      rows
        .filter(row => hasEnded(row) && isNews(before.get(row.run_id), row))
        .forEach(row => this._ended.emit(row));
    }
  }

  private _rows = new Map<string, RunRow>();
  /** Those that are read one by one: the list holds the newest only. */
  private _older = new Map<string, RunRow>();
  private _sorted: RunRow[] = [];
  private _selected = new Set<string>();
  private _isKnown = false;
  private _trouble: Trouble | null = null;
  private _changed = new Signal<IRunsModel, void>(this);
  private _ended = new Signal<IRunsModel, RunRow>(this);
  private _subscription: IDisposable;
}

/** A run that was not listed before has ended between two updates. */
function isNews(before: RunRow | undefined, now: RunRow): boolean {
  return (
    before === undefined || !hasEnded(before) || before.attempt < now.attempt
  );
}

/**
 * Whether each word of the filter occurs in what is known of a run by name.
 */
export function matches(run: RunRow, filter: string): boolean {
  const { run_id, kind, name, title, differs, cluster, state } = run;
  const text = [run_id, kind, name, title, differs, cluster, state]
    .join(' ')
    .toLowerCase();
  return filter
    .toLowerCase()
    .split(/\s+/)
    .every(word => text.includes(word));
}

/**
 * Runs by cluster; clusters in the order of their newest run.
 */
export function grouped(
  runs: readonly RunRow[]
): { cluster: string; runs: RunRow[] }[] {
  const groups = new Map<string, RunRow[]>();
  for (const run of runs) {
    const group = groups.get(run.cluster);
    if (group) {
      group.push(run);
    } else {
      groups.set(run.cluster, [run]);
    }
  }
  return [...groups].map(([cluster, members]) => ({ cluster, runs: members }));
}
