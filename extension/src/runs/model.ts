import { ISignal, Signal } from '@lumino/signaling';

import { ILive, IRunsModel, LiveMessage } from '../tokens';
import { TopicModel } from '../topicModel';
import { DASH } from '../ui/format';
import { RunRow, RunsNews } from '../wire';

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
export class RunsModel extends TopicModel implements IRunsModel {
  constructor(
    live: ILive,
    private ask: (runId: string) => Promise<RunRow>
  ) {
    super();
    this.follow(live, 'runs');
  }

  get runs(): readonly RunRow[] {
    return this._sorted;
  }

  get ended(): ISignal<IRunsModel, RunRow> {
    return this._ended;
  }

  get selected(): ReadonlySet<string> {
    return this._selected;
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
      this.emitChanged();
    }
  }

  select(runId: string, isSelected: boolean): void {
    if (isSelected) {
      this._selected.add(runId);
    } else {
      this._selected.delete(runId);
    }
    this.emitChanged();
  }

  clearSelection(): void {
    this._selected.clear();
    this.emitChanged();
  }

  protected receive({ kind, data }: LiveMessage): boolean {
    if (kind !== 'runs') {
      return false;
    }
    this.update(data);
    return true;
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
    if (this.isKnown && !reading) {
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
  private _ended = new Signal<IRunsModel, RunRow>(this);
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

/** What a run is called by. */
export type Named = Pick<RunRow, 'title' | 'differs' | 'name' | 'run_id'>;

/**
 * Its title, else what it differs in from the other runs of its config, else its config's name:
 * an id is never the only name.
 */
export function nameOf({ title, differs, name, run_id }: Named): string {
  return title || differs || name || run_id;
}

/** The name with the id behind it; an id that begins with the name says both. */
export function nameWithId(run: Named): string {
  const { run_id } = run;
  const name = nameOf(run);
  return run_id === name || run_id.startsWith(`${name}-`)
    ? run_id
    : `${name} (${run_id})`;
}

const MOST_KEPT = 16;

/**
 * Where the end of a name begins that is not cut off: its last word, often the one value that
 * tells it from the others, as in `data part-3.jsonl · max_length 512`.
 */
export function keptFrom(name: string): number {
  const at = name.trimEnd().lastIndexOf(' ');
  return at > 0 && name.length - at <= MOST_KEPT ? at : name.length;
}
