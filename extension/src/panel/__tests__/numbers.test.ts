import { describe, expect, it } from 'vitest';

import {
  Point,
  atSteps,
  chartChoice,
  panned,
  positive,
  smoothed,
  toCsv,
  valueAt,
  xValues,
  zoomed
} from '../numbers';

describe('smoothed', () => {
  it('begins with the first number and follows TensorBoard', () => {
    // last = last * w + (1 - w) * y, divided by 1 - w ** count.
    const values = [4, 2, 3];
    const [first, second, third] = smoothed(values, 0.5);
    expect(first).toBeCloseTo(4);
    expect(second).toBeCloseTo((0.25 * 4 + 0.5 * 2) / 0.75);
    expect(third).toBeCloseTo((0.125 * 4 + 0.25 * 2 + 0.5 * 3) / 0.875);
  });

  it('leaves a constant curve and a weight of 0 as they are', () => {
    smoothed([7, 7, 7], 0.9).forEach(value => expect(value).toBeCloseTo(7));
    expect(smoothed([1, 5, 2], 0)).toEqual([1, 5, 2]);
  });

  it('keeps unknown numbers unknown and does not count them', () => {
    const [, gap, nan, infinite, last] = smoothed(
      [4, null, NaN, Infinity, 2],
      0.5
    );
    expect([gap, nan, infinite]).toEqual([null, null, null]);
    expect(last).toBeCloseTo((0.25 * 4 + 0.5 * 2) / 0.75);
  });

  it('never smooths so much that a curve cannot move', () => {
    const values = smoothed([0, ...new Array(20_000).fill(1)], 1);
    expect(values[20_000]).toBeGreaterThan(0.99);
  });
});

describe('a log scale', () => {
  it('leaves out and counts what it cannot show', () => {
    expect(positive([1, 0, -2, null, NaN, 3])).toEqual({
      values: [1, null, null, null, null, 3],
      numLeftOut: 2
    });
  });
});

describe('the x axis', () => {
  const columns: Record<string, number[]> = {
    tokens: [10, 20, 30],
    epoch: [0.1, 0.2, 0.2],
    utc_day: [100, 100, 101],
    utc_second: [86_000, 86_200, 200]
  };
  const native = { label: 'step', values: [1, 2, 3] };
  const of = (name: string) => columns[name] ?? [];
  const values = (key: string, whole = true) =>
    xValues(key, native, of, whole)?.values;

  it('adds tokens up, and knows hours across midnight', () => {
    expect(Array.from(values('tokens') ?? [])).toEqual([10, 30, 60]);
    expect(Array.from(values('time') ?? [])).toEqual([
      0,
      200 / 3600,
      600 / 3600
    ]);
    expect(Array.from(values('epoch') ?? [])).toEqual([0.1, 0.2, 0.2]);
    expect(values('step')).toBe(native.values);
  });

  it('is unknown where a number is, or rows were left out', () => {
    expect(values('tokens', false)).toBeUndefined();
    columns.tokens = [10, NaN, 30];
    expect(values('tokens')).toBeUndefined();
    columns.epoch = [0.1, NaN, 0.2];
    expect(values('epoch')).toBeUndefined();
    delete columns.epoch;
    expect(values('epoch')).toBeUndefined();
  });

  it('puts evaluations at the row of their step', () => {
    const points: Point[] = [
      [0, 9],
      [2, 8],
      [7, 7]
    ];
    const steps = [1, 2, 3];
    const tokens = { key: 'tokens', label: '', values: [10, 30, 60] };
    expect(atSteps(points, steps, tokens)).toEqual([
      [10, 9],
      [30, 8],
      [60, 7]
    ]);
    const axis = { key: 'step', label: '', values: [...steps] };
    expect(atSteps(points, steps, axis)).toEqual(points);
  });
});

describe('zoom and pan', () => {
  it('keeps the place under the mouse and stays within the data', () => {
    expect(zoomed([0, 100], 0.5, 25, [0, 100])).toEqual([12.5, 62.5]);
    expect(zoomed([12.5, 62.5], 4, 25, [0, 100])).toBeNull();
    expect(panned([12.5, 62.5], 0.1, [0, 100])).toEqual([17.5, 67.5]);
    expect(panned([12.5, 62.5], -1, [0, 100])).toEqual([0, 50]);
    expect(panned([40, 90], 1, [0, 100])).toEqual([50, 100]);
  });
});

describe('reading and keeping', () => {
  it('reads the last known value before the cursor', () => {
    expect(valueAt([1, null, 3, null], 1)).toBe(1);
    expect(valueAt([1, null, 3, null], null)).toBe(3);
    expect(valueAt([null, 2], 0)).toBeNull();
  });

  it('writes CSV without formulas and without invented numbers', () => {
    const text = toCsv(
      ['step', '=cmd', 'a,b'],
      [
        [1, 2],
        [NaN, 0.5],
        [null, 1e-7]
      ]
    );
    expect(text).toBe('step,\'=cmd,"a,b"\r\n1,,\r\n2,0.5,1e-7\r\n');
  });

  it('takes no setting that it does not know', () => {
    const none = { smoothing: 0, log: false, x: 'step', more: [] };
    expect(chartChoice(null)).toEqual(none);
    expect(
      chartChoice({ smoothing: 'x', log: 1, x: 'moon', more: [3, null] })
    ).toEqual(none);
    expect(chartChoice({ smoothing: 7, x: 'epoch' })).toMatchObject({
      smoothing: 0.999,
      x: 'epoch'
    });
  });
});
