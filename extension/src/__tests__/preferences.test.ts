import { Signal } from '@lumino/signaling';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { Preferences } from '../preferences';
import { Json } from '../tokens';

/** Lab's settings of one plugin, as far as they are used here. */
class FakeSettings {
  composite: Json = { charts: { x: 'step' } };
  changed = new Signal<this, void>(this);
  fails = false;

  set = vi.fn(async (name: string, value: unknown) => {
    if (this.fails) {
      throw new Error('no disk');
    }
    this.composite = { ...this.composite, [name]: value };
    this.changed.emit();
  });
}

type Used = Parameters<Preferences['use']>[0];

describe('the settings of charts', () => {
  const settings = new FakeSettings();
  let preferences = new Preferences();

  beforeEach(() => {
    vi.useFakeTimers();
    settings.composite = { charts: { x: 'step' } };
    settings.fails = false;
    preferences = new Preferences();
    preferences.use(settings as unknown as Used);
  });
  afterEach(() => void vi.useRealTimers());

  it('hold at once and are written when they rest', async () => {
    preferences.charts.keep({ x: 'time' });
    preferences.charts.keep({ x: 'epoch' });
    expect(preferences.charts.read()).toEqual({ x: 'epoch' });
    expect(settings.composite.charts).toEqual({ x: 'step' });
    await vi.runAllTimersAsync();
    expect(settings.composite.charts).toEqual({ x: 'epoch' });
  });

  it('can be edited in the settings after they were chosen in a panel', async () => {
    preferences.charts.keep({ x: 'time' });
    await vi.runAllTimersAsync();
    await settings.set('charts', { x: 'tokens' });
    expect(preferences.charts.read()).toEqual({ x: 'tokens' });
  });

  it('reach the other panels when they rest', async () => {
    let times = 0;
    preferences.charts.changed.connect(() => times++);
    preferences.charts.keep({ x: 'time' });
    expect(times).toBe(0);
    await vi.runAllTimersAsync();
    expect(times).toBeGreaterThan(0);
  });

  it('hold until the page is closed where they cannot be written', async () => {
    const told = vi.spyOn(console, 'error').mockReturnValue();
    settings.fails = true;
    preferences.charts.keep({ x: 'time' });
    await vi.runAllTimersAsync();
    expect(preferences.charts.read()).toEqual({ x: 'time' });
    expect(told).toHaveBeenCalledOnce();
    told.mockRestore();
  });
});
