import { Signal } from '@lumino/signaling';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { ApiError } from '../../api';
import { RunTableAnswer, RunTableQuery } from '../../wire';
import { tagsOf } from '../actions';
import { colourOf, toneColour } from '../colours';
import { shortHeads } from '../head';
import { RunTableModel } from '../model';
import { pathOf } from '../rays';
import { EMPTY, nextSort, sortOf, stateOf } from '../state';

const NUM_RUNS = 10_000;

class Source {
  asked: Partial<RunTableQuery>[] = [];
  fails = false;
  changed = new Signal<unknown, void>(this);

  table(query: Partial<RunTableQuery>): Promise<RunTableAnswer> {
    this.asked.push(query);
    if (this.fails) {
      return Promise.reject(
        new ApiError(422, { message: 'no column', remedy: 'use another' })
      );
    }
    const { first = 0, count = 0 } = query;
    const last = Math.min(NUM_RUNS, first + count);
    const lines = Array.from({ length: last - first }, (_, i) => ({
      group: null,
      run: {
        run_id: `r-${first + i}`,
        label: `run ${first + i}`,
        config: '',
        state: 'SUCCEEDED' as const,
        has_ended: true,
        starred: false,
        tags: [],
        colour: '',
        tone: null,
        cells: []
      }
    }));
    return Promise.resolve({
      version: 1,
      total: NUM_RUNS,
      matched: NUM_RUNS,
      num_lines: NUM_RUNS,
      first,
      lines,
      columns: [],
      reading: false
    });
  }

  rays = () => Promise.resolve({ axes: [], rays: [], left_out: 0 });
  ids = () => Promise.resolve({ run_ids: ['r-1', 'r-2'] });
  columns = () => Promise.resolve([]);
}

let source: Source;
let model: RunTableModel;

beforeEach(async () => {
  vi.useFakeTimers();
  source = new Source();
  model = new RunTableModel(source, EMPTY);
  await model.refresh();
});

afterEach(() => {
  model.dispose();
  vi.useRealTimers();
});

describe('the model of the table', () => {
  it('holds the lines around those in sight only', async () => {
    model.show(0, 40);
    expect(source.asked.length).toBe(1);
    model.show(9_000, 40);
    await vi.advanceTimersByTimeAsync(0);
    expect(model.line(9_000)?.run?.run_id).toBe('r-9000');
    expect(model.line(0)).toBeUndefined();
    expect(model.answer?.lines.length).toBeLessThanOrEqual(500);
  });

  it('asks again at most once a second, and only while it is in sight', async () => {
    source.changed.emit();
    await vi.advanceTimersByTimeAsync(5_000);
    expect(source.asked.length).toBe(1);
    model.isVisible = true;
    await vi.advanceTimersByTimeAsync(0);
    for (let i = 0; i < 50; i++) {
      source.changed.emit();
    }
    await vi.advanceTimersByTimeAsync(1_100);
    expect(source.asked.length).toBe(3);
  });

  it('keeps what it shows when a filter is wrong', async () => {
    source.fails = true;
    model.set({ where: 'evel_loss < 1' });
    await vi.advanceTimersByTimeAsync(0);
    expect(model.trouble?.remedy).toBe('use another');
    expect(model.line(0)?.run?.run_id).toBe('r-0');
    source.fails = false;
    model.set({ where: '' });
    await vi.advanceTimersByTimeAsync(0);
    expect(model.trouble).toBeNull();
  });

  it('selects runs that are not in sight', async () => {
    await model.selectAll();
    expect([...model.selected]).toEqual(['r-1', 'r-2']);
    model.select('r-1', false);
    expect([...model.selected]).toEqual(['r-2']);
  });

  it('keeps the active line inside the table', () => {
    model.activate(Infinity);
    expect(model.active).toBe(NUM_RUNS - 1);
    model.activate(-5);
    expect(model.active).toBe(0);
  });
});

describe('the order', () => {
  it('begins with the better end, then the other, then none', () => {
    expect(nextSort('', 'loss', 'lower')).toBe('loss');
    expect(nextSort('loss', 'loss', 'lower')).toBe('-loss');
    expect(nextSort('-loss', 'loss', 'lower')).toBe('');
    expect(nextSort('', 'mfu', 'higher')).toBe('-mfu');
    expect(nextSort('loss', 'mfu', null)).toBe('mfu');
  });

  it('is said to screen readers', () => {
    expect(sortOf('loss, run', 'loss')).toBe('ascending');
    expect(sortOf('-loss', 'loss')).toBe('descending');
    expect(sortOf('run,loss', 'loss')).toBe('none');
  });
});

describe('what a user writes', () => {
  it('reads tags to add and to remove', () => {
    expect(tagsOf(' best, -draft ,, - ,a b')).toEqual({
      add: ['best', 'a b'],
      remove: ['draft']
    });
  });

  it('takes nothing of another type from a saved layout', () => {
    expect(stateOf({ where: 3, columns: [1, 'r'], rays: 'yes' })).toEqual({
      ...EMPTY,
      columns: ['r']
    });
  });
});

describe('the heads', () => {
  it('are as short as they can be told apart', () => {
    const config = (label: string) => ({ label, source: 'config' as const });
    const columns = [
      config('optimizer.learning_rate'),
      config('method.type'),
      config('data.type'),
      { label: 'eval loss', source: 'figure' as const }
    ];
    expect(shortHeads(columns)).toEqual([
      'learning_rate',
      'method',
      'data',
      'eval loss'
    ]);
  });
});

describe('coordinates', () => {
  it('are interrupted where a value is unknown', () => {
    const ray = { run_id: 'r', label: '', tone: null, at: [0, 1, null, 0.5] };
    expect(pathOf(ray, at => at * 10)).toBe('M0.0,190.0L10.0,34.0M30.0,112.0');
  });

  it('have a colour of their own or that of the run', () => {
    expect(colourOf(null, 'blue')).toBe('#1e88e5');
    expect(colourOf(null, 'javascript:')).toBe('transparent');
    expect(colourOf(0, 'blue')).toBe(toneColour(0));
  });
});
