import { LogMatches, LogWindow } from '../wire';
import { ILogSearch } from './requests';

const encoder = new TextEncoder();
const ANSI = /\u001b\[[0-9;?]*[A-Za-z]/g;
// As in llmops_kernel/store/run_lines.py.
const WORKER = String.raw`^(?:\([\w.:\- ]*pid=\d+[^)]*\) )?`;
const OWN = new RegExp(String.raw`${WORKER}\[llmops\] (.*)`, 's');
const BACKGROUND = new RegExp(
  String.raw`${WORKER}(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\s+INFO\s|Running entrypoint for job )`
);

/** As a terminal shows it: colours left out, a progress bar's last state only. */
export function shown(text: string): string {
  const plain = text.replace(ANSI, '').replace(/\r+$/, '');
  return plain.slice(plain.lastIndexOf('\r') + 1);
}

/** Whether a line is one of Ray's own: of level INFO, or its entrypoint. */
export function isBackground(text: string): boolean {
  return BACKGROUND.test(text.replace(ANSI, ''));
}

/** A line of a run about itself without its mark and its process. */
export function unmarked(text: string): string {
  return OWN.exec(text)?.[1] ?? text;
}

export type Pattern = Pick<ILogSearch, 'text' | 'regex' | 'ignore_case'>;

/** Begin and end of the first hit in a line as it is shown; null where it has none. */
export function hitIn(line: string, what: Pattern): [number, number] | null {
  if (!what.text) {
    return null;
  }
  const source = what.regex
    ? what.text
    : what.text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  try {
    const hit = new RegExp(source, what.ignore_case ? 'i' : '').exec(line);
    return hit && hit[0] ? [hit.index, hit.index + hit[0].length] : null;
  } catch {
    return null; // Python's expressions are not all JavaScript's.
  }
}

const COUNTED = 5000;
const PER_REQUEST = 500;

/** Offsets of the lines that match, in order. */
export interface ICount {
  offsets: number[];
  /** There are more, which were not counted. */
  isMore: boolean;
}

/**
 * Find all lines that match, in requests that are each answered in about a second.
 */
export async function countMatches(
  search: (what: ILogSearch) => Promise<LogMatches>,
  what: Omit<ILogSearch, 'start' | 'backwards'>,
  isShown: (text: string) => boolean,
  signal: AbortSignal
): Promise<ICount> {
  const offsets: number[] = [];
  let start: number | null = 0;
  while (start !== null && offsets.length < COUNTED && !signal.aborted) {
    const ask = { ...what, start, backwards: false, limit: PER_REQUEST };
    const found: LogMatches = await search(ask);
    offsets.push(
      ...found.matches.filter(one => isShown(one.text)).map(one => one.offset)
    );
    start = found.next;
  }
  return { offsets, isMore: start !== null };
}

/** `3 of 17, continued from the beginning`. */
export function matchText(
  count: ICount | null,
  found: number | undefined,
  wrapped: string
): string {
  if (found === undefined || !count) {
    return wrapped;
  }
  const at = count.offsets.indexOf(found) + 1;
  const total = `${count.offsets.length.toLocaleString('en-US')}${count.isMore ? '+' : ''}`;
  const place = at
    ? `${at.toLocaleString('en-US')} of ${total}`
    : `${total} matches`;
  return [place, wrapped].filter(Boolean).join(', ');
}

export interface ILogLine {
  /** Of its first byte in the log. */
  offset: number;
  text: string;
  /** One of Ray's own. */
  isBackground: boolean;
}

export function lineOf(offset: number, text: string): ILogLine {
  const plain = shown(text);
  return { offset, text: unmarked(plain), isBackground: isBackground(text) };
}

/** Where a search goes on behind a hit in a line that is not shown. */
export function nextStart(
  hit: LogMatches['matches'][number],
  backwards: boolean
): number | null {
  return backwards ? (hit.offset > 0 ? hit.offset : null) : hit.end;
}

export function linesOf(window: LogWindow): ILogLine[] {
  let offset = window.offset;
  const texts = window.text.split('\n');
  if (texts[texts.length - 1] === '') {
    texts.pop();
  }
  return texts.map(text => {
    const line = lineOf(offset, text);
    offset += encoder.encode(text).length + 1;
    return line;
  });
}

const NARROW = /^[\x20-\x7e]*$/;
const TAB_COLUMNS = 8;

/**
 * How many columns a text takes. A character outside Latin may be drawn as wide as two: a row too
 * many leaves a gap, one too few would hide text.
 */
export function columnsOf(text: string): number {
  if (NARROW.test(text)) {
    return text.length;
  }
  let columns = 0;
  for (const character of text) {
    if (character === '\t') {
      columns += TAB_COLUMNS - (columns % TAB_COLUMNS);
    } else {
      columns += (character.codePointAt(0) ?? 0) < 0x250 ? 1 : 2;
    }
  }
  return columns;
}

/**
 * The rows that lines are drawn in: one each, or as many as a wrapped one takes.
 */
export class LineRows {
  /** @param columns how wide a row is; null where lines are not wrapped */
  constructor(texts: readonly string[], columns: number | null) {
    this._count = texts.length;
    if (columns === null || columns < 1) {
      return;
    }
    this._begins = [0];
    for (const text of texts) {
      const rows = Math.max(1, Math.ceil(columnsOf(text) / columns));
      this._begins.push(this._begins[this._begins.length - 1] + rows);
    }
  }

  get total(): number {
    return this.begin(this._count);
  }

  /** The first row of a line; behind the last line, how many rows there are. */
  begin(line: number): number {
    return this._begins?.[line] ?? line;
  }

  /** Which line a row belongs to; beyond the end the number of lines. */
  lineAt(row: number): number {
    let [low, high] = [0, this._count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.begin(middle + 1) <= row) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  private _count: number;
  private _begins: number[] | null = null;
}
