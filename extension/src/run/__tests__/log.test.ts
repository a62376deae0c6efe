import { describe, expect, it, vi } from 'vitest';

import { LogMatches, LogWindow } from '../../wire';
import { ILogSource, LogModel, shown } from '../logModel';
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

function ends(model: LogModel): [string, string] {
  const { lines } = model;
  return [lines[0].text, lines[lines.length - 1].text];
}

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
    expect(log.search.mock.calls.map(([ask]) => ask.start).slice(1)).toEqual([
      7780, 0
    ]);
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
    expect(log.search.mock.calls.map(([ask]) => ask.start)).toEqual([
      0, 3000, 6000
    ]);
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
