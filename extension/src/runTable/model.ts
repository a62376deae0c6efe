import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { asTrouble } from '../api';
import {
  RunIds,
  RunTableAnswer,
  RunTableColumn,
  RunTableLine,
  RunTableQuery,
  RunTableRays,
  RunTableRun,
  Trouble
} from '../wire';
import { ITableState } from './state';

/** Lines that are asked for above and below those in sight. */
const MARGIN = 60;
const MAX_LINES = 500;
const WAIT_MS = 1000;

/**
 * What the model asks the server.
 */
export interface ITableSource {
  table(
    query: Partial<RunTableQuery>,
    signal: AbortSignal
  ): Promise<RunTableAnswer>;
  rays(
    query: Partial<RunTableQuery>,
    signal: AbortSignal
  ): Promise<RunTableRays>;
  ids(query: Partial<RunTableQuery>): Promise<RunIds>;
  columns(): Promise<RunTableColumn[]>;

  /** Emitted when a run has changed. */
  readonly changed: ISignal<unknown, unknown>;
}

/**
 * The table of all runs: the server filters and sorts, this holds the lines around those in sight.
 */
export class RunTableModel implements IDisposable {
  constructor(
    private source: ITableSource,
    state: ITableState
  ) {
    this._state = state;
    source.changed.connect(this.refreshSoon, this);
  }

  get state(): ITableState {
    return this._state;
  }

  /** The newest answer; null before the first. */
  get answer(): RunTableAnswer | null {
    return this._answer;
  }

  get rays(): RunTableRays | null {
    return this._state.rays ? this._rays : null;
  }

  /** Why the question has no answer; what is shown is that of the last one which had. */
  get trouble(): Trouble | null {
    return this._trouble;
  }

  get every(): readonly RunTableColumn[] {
    return this._every;
  }

  get selected(): ReadonlySet<string> {
    return this._selected;
  }

  /** The line with the keyboard's focus. */
  get active(): number {
    return this._active;
  }

  get isVisible(): boolean {
    return this._isVisible;
  }

  set isVisible(isVisible: boolean) {
    this._isVisible = isVisible;
    if (isVisible) {
      void this.refresh();
    }
  }

  get changed(): ISignal<RunTableModel, void> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  line(index: number): RunTableLine | undefined {
    const answer = this._answer;
    return answer?.lines[index - answer.first];
  }

  /** Ask for something else; the lines of the old question stay until there is an answer. */
  set(change: Partial<ITableState>): void {
    this._state = { ...this._state, ...change };
    this._closed.clear();
    this._active = 0;
    this._first = 0;
    void this.refresh();
  }

  /** Open or close a group. */
  toggleGroup(key: string): void {
    if (!this._closed.delete(key)) {
      this._closed.add(key);
    }
    void this.refresh();
  }

  /** Say which lines are in sight. */
  show(first: number, count: number): void {
    this._first = first;
    this._count = count;
    const answer = this._answer;
    if (!answer) {
      return;
    }
    const last = Math.min(first + count, answer.num_lines);
    if (first < answer.first || last > answer.first + answer.lines.length) {
      void this.refresh();
    }
  }

  activate(index: number): void {
    const last = (this._answer?.num_lines ?? 0) - 1;
    this._active = Math.max(0, Math.min(index, last));
    this._changed.emit();
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

  /** Select every run that matches, in sight or not. */
  async selectAll(): Promise<void> {
    const { run_ids } = await this.source.ids(this.query());
    this._selected = new Set(run_ids);
    this._changed.emit();
  }

  /** The selected runs that are known to this page, for what an action needs of them. */
  runs(): RunTableRun[] {
    return (this._answer?.lines ?? []).flatMap(({ run }) => run ?? []);
  }

  async refresh(): Promise<void> {
    clearTimeout(this._timer);
    this._timer = undefined;
    this._request?.abort();
    const request = (this._request = new AbortController());
    const { signal } = request;
    try {
      const first = Math.max(0, this._first - MARGIN);
      const count = Math.min(MAX_LINES, this._count + 2 * MARGIN);
      const query = { ...this.query(), closed: [...this._closed] };
      const answer = await this.source.table(
        { ...query, first, count },
        signal
      );
      const rays = this._state.rays
        ? await this.source.rays(this.query(), signal)
        : null;
      this._answer = answer;
      this._rays = rays;
      this._trouble = null;
      this._active = Math.max(0, Math.min(this._active, answer.num_lines - 1));
    } catch (error) {
      if (signal.aborted) {
        return; // A later question is on its way.
      }
      this._trouble = asTrouble(error);
    }
    this._changed.emit();
  }

  async loadColumns(): Promise<void> {
    try {
      this._every = await this.source.columns();
      this._changed.emit();
    } catch (error) {
      this._trouble = asTrouble(error);
      this._changed.emit();
    }
  }

  dispose(): void {
    this._isDisposed = true;
    clearTimeout(this._timer);
    this._request?.abort();
    this.source.changed.disconnect(this.refreshSoon, this);
    Signal.clearData(this);
  }

  private query(): Partial<RunTableQuery> {
    const { where, sort, columns, group, colour_by, hidden } = this._state;
    return { where, sort, columns: [...columns], group, colour_by, hidden };
  }

  /** At most once a second, and only while it is in sight: runs change all the time. */
  private refreshSoon(): void {
    if (this._isVisible && this._timer === undefined) {
      this._timer = window.setTimeout(() => void this.refresh(), WAIT_MS);
    }
  }

  private _state: ITableState;
  private _answer: RunTableAnswer | null = null;
  private _rays: RunTableRays | null = null;
  private _trouble: Trouble | null = null;
  private _every: readonly RunTableColumn[] = [];
  private _selected = new Set<string>();
  private _closed = new Set<string>();
  private _active = 0;
  private _first = 0;
  private _count = 60;
  private _isVisible = false;
  private _isDisposed = false;
  private _timer: number | undefined;
  private _request: AbortController | null = null;
  private _changed = new Signal<RunTableModel, void>(this);
}
