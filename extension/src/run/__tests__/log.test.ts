import { describe, expect, it, vi } from 'vitest';

import { LogMatches, LogWindow } from '../../wire';
import {
  hitIn,
  isBackground,
  shown,
  unmarked,
  columnsOf,
  LineRows
} from '../logLines';
import { ILogSource, LogModel } from '../logModel';
import { ILogPlace, ILogSearch } from '../requests';

const LIMIT = 1000;
const LINE = 10;

/** A log of lines of ten bytes, read as the server reads it. */
class FakeLog implements ILogSource {
  constructor(
    public count: number,
    public partial = ''
  ) {}

  asked: ILogPlace[] = [];

  get size(): number {
    return this.count * LINE + this.partial.length;
  }

  text(from: number, to: number): string {
    let text = '';
    for (let line = from; line < to; line++) {
      text += `${String(line).padStart(9, '0')}\n`;
    }
    return text;
  }

  async read(place: ILogPlace): Promise<LogWindow> {
    this.asked.push(place);
    const lines = (place.limit ?? LIMIT) / LINE;
    let from: number;
    let to: number;
    if (place.before !== undefined) {
      to = Math.floor(place.before / LINE);
      from = Math.max(0, Math.floor(to - lines));
    } else {
      const offset = place.offset ?? Math.max(0, this.size - LIMIT);
      from = Math.floor(offset / LINE);
      to = Math.min(this.count, from + lines);
    }
    return {
      offset: from * LINE,
      end: to * LINE,
      size: this.size,
      text: this.text(from, to),
      partial:
        to === this.count && place.before === undefined ? this.partial : ''
    };
  }

  search = vi.fn(
    async ({ text, start, backwards }: ILogSearch): Promise<LogMatches> => {
      const line = Number(text);
      const offset = line * LINE;
      const there = line < this.count;
      const ahead = backwards ? offset < start : offset >= start;
      const matches =
        there && ahead ? [{ offset, end: offset + LINE, text }] : [];
      return { matches, next: null };
    }
  );
}

/** Where each search for the next match began; counting is apart. */
function starts(log: FakeLog): number[] {
  return log.search.mock.calls
    .filter(([ask]) => ask.limit === undefined)
    .map(([ask]) => ask.start);
}

function ends(model: LogModel): [string, string] {
  const { lines } = model;
  return [lines[0].text, lines[lines.length - 1].text];
}

/** A log of which each search request reads a tenth, and then waits. */
class SlowLog extends FakeLog {
  answer: () => void = () => undefined;

  override search = vi.fn(
    async (
      { start }: ILogSearch,
      signal?: AbortSignal
    ): Promise<LogMatches> => {
      await new Promise<void>((resolve, reject) => {
        this.answer = resolve;
        if (this.honours) {
          signal?.addEventListener('abort', () => reject(new Error('aborted')));
        }
      });
      const next = start + this.size / 10;
      return { matches: [], next: next < this.size ? next : null };
    }
  );

  /** Whether a request ends at once when it is aborted. */
  honours = true;
}

describe('a search that is stopped', () => {
  const what = { text: 'x', regex: false, ignore_case: true, backwards: false };

  for (const honours of [true, false]) {
    it(`says so and nothing else (${honours ? 'in' : 'between'} requests)`, async () => {
      const log = new SlowLog(100);
      log.honours = honours;
      const model = new LogModel(log);
      await model.toEnd();
      const search = model.find(what, 0);
      await vi.waitFor(() => expect(log.search).toHaveBeenCalledTimes(1));
      log.answer();
      await vi.waitFor(() => expect(log.search).toHaveBeenCalledTimes(2));
      expect(model.searched).toBe('Searching: 10 %');
      model.cancel();
      expect(model.searched).toBe('Search stopped');
      log.answer();
      await search;
      expect(model.searched).toBe('Search stopped');
      expect(log.search).toHaveBeenCalledTimes(2);
      expect([model.isBusy, model.trouble]).toEqual([false, null]);
    });
  }

  it('leaves the result of one that has ended', async () => {
    const model = new LogModel(new FakeLog(100));
    await model.toEnd();
    await model.find({ ...what, text: '500' }, 0);
    model.cancel();
    expect(model.searched).toBe('No line matches');
  });
});

describe('LogModel', () => {
  it('begins at the end and follows', async () => {
    const log = new FakeLog(500, 'half');
    const model = new LogModel(log);
    await model.grown();
    expect(ends(model)).toEqual(['000000400', '000000499']);
    expect(model.partial).toBe('half');
    log.count = 520;
    log.partial = '';
    await model.grown();
    expect(ends(model)).toEqual(['000000400', '000000519']);
    expect(model.partial).toBe('');
    expect(log.asked[1].offset).toBe(5000);
  });

  it('reads nothing new while it is not followed', async () => {
    const log = new FakeLog(500);
    const model = new LogModel(log);
    await model.grown();
    model.following = false;
    log.count = 600;
    await model.grown();
    expect(log.asked).toHaveLength(1);
  });

  it('loads what is before and after, without gap or overlap', async () => {
    const model = new LogModel(new FakeLog(1000));
    await model.toOffset(5000);
    await model.before();
    await model.after();
    const offsets = model.lines.map(line => line.offset);
    expect(new Set(offsets).size).toBe(offsets.length);
    expect(
      offsets.every((at, i) => i === 0 || at === offsets[i - 1] + LINE)
    ).toBe(true);
    expect(
      model.lines.every(line => Number(line.text) * LINE === line.offset)
    ).toBe(true);
    expect(model.following).toBe(false);
  });

  it('keeps a bounded part of a log without end', async () => {
    const model = new LogModel(new FakeLog(100_000_000));
    await model.toOffset(500_000_000);
    for (let i = 0; i < 300; i++) {
      await model.after();
    }
    expect(model.lines.length).toBeLessThanOrEqual(20_000);
    const { start } = model;
    expect(model.lines[0].offset).toBe(start);
    for (let i = 0; i < 300; i++) {
      await model.before();
    }
    expect(model.lines.length).toBeLessThanOrEqual(20_000);
    const last = model.lines[model.lines.length - 1];
    expect(model.end).toBe(last.offset + LINE);
    expect(model.start).toBeLessThan(start);
  });

  it('goes to a match wherever it is, then to the next', async () => {
    const log = new FakeLog(100_000);
    const model = new LogModel(log);
    await model.grown();
    const what = { text: '777', regex: false, ignore_case: true };
    await model.find({ ...what, backwards: true }, model.from(true, model.end));
    expect(model.found?.offset).toBe(7770);
    expect(model.lines.some(line => line.offset === 7770)).toBe(true);
    expect(model.from(false, 0)).toBe(7780);
    expect(model.from(true, 0)).toBe(7770);
    await model.find({ ...what, backwards: false }, model.from(false, 0));
    // Not ahead any more, so from the beginning again.
    expect(starts(log).slice(1)).toEqual([7780, 0]);
    expect(model.found?.offset).toBe(7770);
  });

  it('goes on searching where the server had no more time', async () => {
    const log = new FakeLog(1000);
    const model = new LogModel(log);
    await model.grown();
    log.search
      .mockResolvedValueOnce({ matches: [], next: 3000 })
      .mockResolvedValueOnce({ matches: [], next: 6000 });
    const what = { text: '900', regex: false, ignore_case: true };
    await model.find({ ...what, backwards: false }, 0);
    expect(starts(log)).toEqual([0, 3000, 6000]);
    expect(model.found?.offset).toBe(9000);
  });

  it('says that nothing matches, and why it cannot read', async () => {
    const log = new FakeLog(10);
    const model = new LogModel(log);
    await model.grown();
    const what = { text: '99', regex: false, ignore_case: true };
    await model.find({ ...what, backwards: false }, 0);
    expect(model.searched).not.toBe('');
    expect(model.found).toBeNull();
    log.read = () => Promise.reject(new Error('away'));
    await model.after();
    expect(model.trouble?.message).toBe('away');
    expect(model.lines).toHaveLength(10);
  });
});

describe('shown', () => {
  it('is what a terminal would show', () => {
    expect(shown('\u001b[36m(worker)\u001b[0m hello')).toBe('(worker) hello');
    expect(shown(' 10%\r 50%\r100%')).toBe('100%');
    expect(shown('windows\r')).toBe('windows');
  });
});

const RAY = '2026-11-23 03:58:23,297\tINFO plugin.py:258 -- loss of a URI';
const ENTRYPOINT =
  'Running entrypoint for job tiny-1: python -m x eJyFUNtugzAM';
const STEP =
  '\u001b[36m(RayTrainWorker pid=7)\u001b[0m [llmops] 10:00 step 1, loss 2';
const TEXT = [RAY, ENTRYPOINT, STEP, 'my loss', RAY, 'end'].join('\n') + '\n';

/** A short log, searched as the server does. */
class TextLog implements ILogSource {
  read = async (): Promise<LogWindow> => ({
    offset: 0,
    end: TEXT.length,
    size: TEXT.length,
    text: TEXT,
    partial: ''
  });

  search = async (ask: ILogSearch): Promise<LogMatches> => {
    let offset = 0;
    const all = TEXT.split('\n')
      .map(text => {
        const line = { offset, end: offset + text.length + 1, text };
        offset = line.end;
        return line;
      })
      .filter(line => line.text.includes(ask.text))
      .filter(line =>
        ask.backwards ? line.offset < ask.start : line.offset >= ask.start
      );
    const ordered = ask.backwards ? all.reverse() : all;
    const matches = ordered.slice(0, ask.limit ?? 1);
    return { matches, next: ordered[matches.length]?.offset ?? null };
  };
}

describe('the lines that are shown', () => {
  it("are those of the training; Ray's own are behind a switch", async () => {
    const model = new LogModel(new TextLog());
    await model.grown();
    const texts = () => model.lines.map(line => line.text);
    expect(texts()).toEqual(['10:00 step 1, loss 2', 'my loss', 'end']);
    expect(model.hasHidden).toBe(true);
    model.showsAll = true;
    expect(texts()).toHaveLength(6);
    expect(texts()[1]).toBe(ENTRYPOINT);
  });

  it('are the ones that a search finds, counts and continues in', async () => {
    const model = new LogModel(new TextLog());
    await model.grown();
    const find = async (backwards: boolean) => {
      const what = { text: 'loss', regex: false, ignore_case: true };
      await model.find({ ...what, backwards }, model.from(backwards, 0));
      await vi.waitFor(() => expect(model.searched).toMatch(/of|match/));
      return [model.found?.text, model.searched];
    };
    expect(await find(false)).toEqual(['10:00 step 1, loss 2', '1 of 2']);
    expect(await find(false)).toEqual(['my loss', '2 of 2']);
    expect(await find(false)).toEqual([
      '10:00 step 1, loss 2',
      '1 of 2, continued from the beginning'
    ]);
    expect(await find(true)).toEqual([
      'my loss',
      '2 of 2, continued from the end'
    ]);
    model.showsAll = true;
    expect((await find(false))[1]).toBe('1 of 4');
  });
});

describe('a line', () => {
  it('of Ray is recognised', () => {
    expect([RAY, ENTRYPOINT, `(x pid=1) ${RAY}`].every(isBackground)).toBe(
      true
    );
    const warning = RAY.replace('INFO', 'WARNING');
    expect([STEP, warning, 'INFO of mine'].some(isBackground)).toBe(false);
    expect(unmarked('(RayTrainWorker pid=7) [llmops] x')).toBe('x');
    expect(unmarked('(RayTrainWorker pid=7) x')).toBe(
      '(RayTrainWorker pid=7) x'
    );
  });

  it('has its match marked where it is', () => {
    const what = { text: 'A.C', regex: false, ignore_case: true };
    expect(hitIn('..a.c', what)).toEqual([2, 5]);
    expect(hitIn('..abc', what)).toBeNull();
    expect(hitIn('..abc', { ...what, regex: true })).toEqual([2, 5]);
    expect(hitIn('(?P<x>a)', { ...what, text: '(?P<x>a)', regex: true })).toBe(
      null
    );
  });
});

describe('rows of wrapped lines', () => {
  const texts = ['', 'x'.repeat(80), 'x'.repeat(81), '火'.repeat(41), 'a\tb'];

  it('are as many as a line of that width needs, and each is found again', () => {
    const rows = new LineRows(texts, 80);
    const begins = texts.map((_, index) => rows.begin(index));
    expect(begins).toEqual([0, 1, 2, 4, 6]);
    expect(rows.total).toBe(7);
    const lines = Array.from({ length: 8 }, (_, row) => rows.lineAt(row));
    expect(lines).toEqual([0, 1, 2, 2, 3, 3, 4, 5]);
    expect(columnsOf('a\tb')).toBe(9);
  });

  it('are one a line where nothing is wrapped', () => {
    const rows = new LineRows(texts, null);
    expect([rows.total, rows.begin(3), rows.lineAt(3)]).toEqual([5, 3, 3]);
    expect(new LineRows([], 80).total).toBe(0);
  });
});
