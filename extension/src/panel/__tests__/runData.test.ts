import { describe, expect, it } from 'vitest';

import { COLUMNS, packed } from '../../run/__tests__/fakes';
import { RunData } from '../runData';

describe('RunData', () => {
  it('grows, replaces from a row on, and refuses a gap', () => {
    const found = new RunData();
    found.describe(COLUMNS);
    for (let step = 1; step <= 1000; step++) {
      expect(found.write(step - 1, packed([[step, 1 / step]]))).toBe(true);
    }
    expect(found.count).toBe(1000);
    expect(found.write(1001, packed([[9, 9]]))).toBe(false);
    expect(
      found.write(
        2,
        packed([
          [3, 30],
          [4, 40]
        ])
      )
    ).toBe(true);
    expect(found.column('epoch')).toEqual([1, 2, 3, 4]);
    expect(found.column('reward', 2).slice(2)).toEqual([60, 80]);
    expect(found.column('idle')).toEqual([null, null, null, null]);
    expect([found.has('reward'), found.has('idle')]).toEqual([true, false]);
    expect([...found.x]).toEqual([1, 2, 3, 4]);
    expect(found.has('loss')).toBe(false);
    expect(found.column('loss')).toEqual([null, null, null, null]);
  });

  it('starts again when the columns are others', () => {
    const rows = new RunData();
    rows.describe(COLUMNS);
    rows.write(0, packed([[1, 3]]));
    rows.describe(COLUMNS.slice(0, 2));
    expect(rows.write(1, new Float32Array([2, 7]).buffer)).toBe(false);
    expect(rows.write(0, new Float32Array([1, 7]).buffer)).toBe(true);
    expect([rows.count, rows.column('reward')]).toEqual([1, [7]]);
  });

  it('reads a message whose bytes begin anywhere', () => {
    const bytes = new Uint8Array(4 * COLUMNS.length + 3);
    bytes.set(new Uint8Array(packed([[1, 3]])), 3);
    const rows = new RunData();
    rows.describe(COLUMNS);
    expect(rows.write(0, new DataView(bytes.buffer, 3))).toBe(true);
    expect([...rows.values('reward')]).toEqual([3]);
    expect([...rows.values('idle')]).toEqual([NaN]);
  });
});
