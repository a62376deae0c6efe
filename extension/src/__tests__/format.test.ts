import { describe, expect, it } from 'vitest';

import * as fmt from '../ui/format';

describe('format', () => {
  it.each([
    [fmt.bytes(0), '0 B'],
    [fmt.bytes(1536), '1.50 KiB'],
    [fmt.bytes(3 * 2 ** 40), '3.00 TiB'],
    [fmt.duration(-1), '0.0 s'],
    [fmt.duration(9.96), '10 s'],
    [fmt.duration(59), '59 s'],
    [fmt.duration(120), '2 min'],
    [fmt.duration(7800), '2 h 10 min'],
    [fmt.duration(4 * 86400), '4 d'],
    [fmt.age(100, 103), 'now'],
    [fmt.age(100, 130), '30 s'],
    [fmt.age(0, 7 * 3600 + 60), '7 h'],
    [fmt.age(0, 5 * 86400), '5 d'],
    [fmt.steps(null, null), '–'],
    [fmt.steps(null, 10), '0 / 10'],
    [fmt.steps(1234, 5000), '1,234 / 5,000'],
    [fmt.amount(0.5), '0.5']
  ])('%s is %s', (shown, wanted) => expect(shown).toBe(wanted));
});
