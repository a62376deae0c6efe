import { ISignal, Signal } from '@lumino/signaling';

import { asTrouble } from '../api';
import { LogMatches, LogWindow, Trouble } from '../wire';
import {
  countMatches,
  ICount,
  ILogLine,
  isBackground,
  lineOf,
  linesOf,
  matchText,
  nextStart,
  Pattern,
  shown,
  unmarked
} from './logLines';
import { ILogPlace, ILogSearch } from './requests';

/**
 * What reads the log of one run.
 */
export interface ILogSource {
  read(place: ILogPlace, signal?: AbortSignal): Promise<LogWindow>;
  search(what: ILogSearch, signal?: AbortSignal): Promise<LogMatches>;
}

const MAX_LINES = 20_000;
const CONTEXT_BYTES = 16 * 1024;

/**
 * The part of a log that is loaded: one stretch of whole lines, moved along its bytes.
 */
export class LogModel {
  constructor(private source: ILogSource) {}

  /** The loaded lines that are shown. */
  get lines(): readonly ILogLine[] {
    this._shown ??= this._showsAll
      ? this._lines
      : this._lines.filter(line => !line.isBackground);
    return this._shown;
  }

  /** Whether some of the loaded lines are not shown. */
  get hasHidden(): boolean {
    return this.lines.length < this._lines.length;
  }

  /** Whether Ray's own lines are shown too. */
  get showsAll(): boolean {
    return this._showsAll;
  }

  set showsAll(value: boolean) {
    this._showsAll = value;
    this._shown = null;
    this._count = null;
    this._found = null;
    this._searched = '';
    this._changed.emit();
  }

  /** The last line while it has no line end. */
  get partial(): string {
    return this._partial;
  }

  get start(): number {
    return this._start;
  }

  get end(): number {
    return this._end;
  }

  get size(): number {
    return this._size;
  }

  get isKnown(): boolean {
    return this._isKnown;
  }

  get isBusy(): boolean {
    return this._busy > 0;
  }

  get trouble(): Trouble | null {
    return this._trouble;
  }

  /** The line that a search has found. */
  get found(): ILogLine | null {
    return this._found;
  }

  /** What came of the last search, for people. */
  get searched(): string {
    const found = this._found?.offset;
    return this._searched || matchText(this._count, found, this._wrapped);
  }

  /** What was searched for last. */
  get pattern(): Pattern | null {
    return this._pattern;
  }

  get following(): boolean {
    return this._following;
  }

  set following(value: boolean) {
    if (value !== this._following) {
      this._following = value;
      if (value) {
        void this.toEnd();
      } else {
        this._changed.emit();
      }
    }
  }

  get attempt(): number | undefined {
    return this._attempt;
  }

  get changed(): ISignal<LogModel, void> {
    return this._changed;
  }

  choose(attempt: number | undefined): Promise<void> {
    this._attempt = attempt;
    this.keep([]);
    this._found = null;
    this._count = null;
    this._isKnown = false;
    return this.toEnd();
  }

  /** The log has grown, or may have. */
  async grown(): Promise<void> {
    if (!this._isKnown) {
      await this.toEnd();
    } else if (this._following && !this.isBusy) {
      await this.after();
    }
  }

  toEnd(): Promise<void> {
    return this.work(async signal => {
      this.replace(await this.read({}, signal));
    });
  }

  toOffset(offset: number): Promise<void> {
    this._following = false;
    return this.work(async signal => {
      const window = await this.read({ offset }, signal);
      this.replace(window);
      if (window.offset > 0) {
        const before = { before: window.offset, limit: CONTEXT_BYTES };
        this.prepend(await this.read(before, signal));
      }
    });
  }

  after(): Promise<void> {
    return this.work(async signal => {
      this.append(await this.read({ offset: this._end }, signal));
    });
  }

  before(): Promise<void> {
    if (this._start === 0) {
      return Promise.resolve();
    }
    return this.work(async signal => {
      this.prepend(await this.read({ before: this._start }, signal));
    });
  }

  /**
   * Find the next line with a hit from `from` on; continues once from the other end.
   * Each request is answered in about a second; a long log takes several.
   */
  find(
    what: Pick<ILogSearch, 'text' | 'regex' | 'ignore_case' | 'backwards'>,
    from: number
  ): Promise<void> {
    this._following = false;
    this._pattern = what;
    return this.work(async signal => {
      signal.throwIfAborted();
      this._isSearching = true;
      let hit = await this.findOnce(what, from, signal);
      this._wrapped = '';
      if (!hit) {
        const otherEnd = what.backwards ? this._size : 0;
        hit = await this.findOnce(what, otherEnd, signal);
        this._wrapped = what.backwards
          ? 'continued from the end'
          : 'continued from the beginning';
      }
      this._isSearching = false;
      this._searched = hit ? '' : 'No line matches';
      this._found = hit ? lineOf(hit.offset, hit.text) : null;
      this._foundEnd = hit?.end ?? 0;
      if (hit && (hit.offset < this._start || hit.offset >= this._end)) {
        const window = await this.read({ offset: hit.offset }, signal);
        this.replace(window);
        const before = { before: window.offset, limit: CONTEXT_BYTES };
        this.prepend(await this.read(before, signal));
      }
      if (hit) {
        void this.count(what, signal);
      }
    });
  }

  /** `3 of 17`; counted in the background, the match is in sight before. */
  private async count(what: Pattern, signal: AbortSignal): Promise<void> {
    const { text, regex, ignore_case } = what;
    const key = JSON.stringify([text, regex, ignore_case, this._size]);
    if (this._count?.key === key) {
      return;
    }
    try {
      const ask = { text, regex, ignore_case, attempt: this._attempt };
      const counted = await countMatches(
        search => this.source.search(search, signal),
        ask,
        line => this._showsAll || !isBackground(line),
        signal
      );
      this._count = { ...counted, key };
      this._changed.emit();
    } catch {
      // The match is there; only its number is not known.
    }
  }

  /** Where the next search begins. */
  from(backwards: boolean, topOffset: number): number {
    if (this._found) {
      return backwards ? this._found.offset : this._foundEnd;
    }
    return topOffset;
  }

  cancel(): void {
    this._abort.abort();
    this._abort = new AbortController();
    if (this._isSearching) {
      this._isSearching = false;
      this._searched = 'Search stopped';
      this._changed.emit();
    }
  }

  dispose(): void {
    this._abort.abort();
    Signal.clearData(this);
  }

  private async findOnce(
    what: Pick<ILogSearch, 'text' | 'regex' | 'ignore_case' | 'backwards'>,
    from: number,
    signal: AbortSignal
  ): Promise<LogMatches['matches'][number] | null> {
    let start: number | null = from;
    while (start !== null) {
      // Stopped between two requests is not the same as nothing found.
      signal.throwIfAborted();
      const ask = { ...what, attempt: this._attempt, start };
      const found: LogMatches = await this.source.search(ask, signal);
      signal.throwIfAborted();
      const [hit] = found.matches;
      if (hit && (this._showsAll || !isBackground(hit.text))) {
        return hit;
      }
      start = hit ? nextStart(hit, what.backwards) : found.next;
      if (start !== null && this._size > 0) {
        this._searched = `Searching: ${Math.round((100 * start) / this._size)} %`;
        this._changed.emit();
      }
    }
    return null;
  }

  private read(place: ILogPlace, signal: AbortSignal): Promise<LogWindow> {
    return this.source.read({ attempt: this._attempt, ...place }, signal);
  }

  /** One after the other: each begins where the one before has ended. */
  private work(task: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const { signal } = this._abort;
    this._busy += 1;
    const done = this._queue.then(async () => {
      try {
        await task(signal);
        this._trouble = null;
      } catch (error) {
        if (!signal.aborted) {
          this._trouble = asTrouble(error);
          this._searched = '';
          this._isSearching = false;
        }
      }
      this._busy -= 1;
      this._changed.emit();
    });
    this._queue = done;
    return done;
  }

  private replace(window: LogWindow): void {
    this.keep(linesOf(window));
    this._start = window.offset;
    this.takeEnd(window);
  }

  private append(window: LogWindow): void {
    if (window.offset !== this._end) {
      this.replace(window); // It was cut or replaced by another file.
      return;
    }
    const lines = [...this._lines, ...linesOf(window)];
    this.keep(lines.slice(-MAX_LINES));
    this._start = this._lines[0]?.offset ?? window.offset;
    this.takeEnd(window);
  }

  private prepend(window: LogWindow): void {
    const lines = [...linesOf(window), ...this._lines];
    this._start = window.offset;
    if (lines.length > MAX_LINES) {
      this._end = lines[MAX_LINES].offset;
      this._partial = '';
    }
    this.keep(lines.slice(0, MAX_LINES));
    this._size = window.size;
  }

  private takeEnd(window: LogWindow): void {
    this._end = window.end;
    this._partial = unmarked(shown(window.partial));
    this._size = window.size;
    this._isKnown = true;
  }

  private keep(lines: ILogLine[]): void {
    this._lines = lines;
    this._shown = null;
  }

  private _attempt: number | undefined;
  private _lines: ILogLine[] = [];
  private _shown: ILogLine[] | null = null;
  private _showsAll = false;
  private _pattern: Pattern | null = null;
  private _count: (ICount & { key: string }) | null = null;
  private _wrapped = '';
  private _partial = '';
  private _start = 0;
  private _end = 0;
  private _size = 0;
  private _isKnown = false;
  private _busy = 0;
  private _trouble: Trouble | null = null;
  private _found: ILogLine | null = null;
  private _foundEnd = 0;
  private _searched = '';
  private _isSearching = false;
  private _following = true;
  private _abort = new AbortController();
  private _queue: Promise<void> = Promise.resolve();
  private _changed = new Signal<LogModel, void>(this);
}
