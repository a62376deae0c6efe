import { Signal } from '@lumino/signaling';
import { describe, expect, it, vi } from 'vitest';

import { LivePanel } from '../live';
import { RunModel, RunModels } from '../model';
import { COLUMNS, FakeLive, packed } from './fakes';

const TOPIC = 'run/r-1';

function rows(live: FakeLive, first: number, ...values: [number, number][]) {
  const data = {
    columns: COLUMNS,
    first,
    generation: 'g-0',
    count: first + values.length
  };
  live.say(TOPIC, 'rows', data, packed(values));
}

describe('RunModel', () => {
  it('takes state and rows, and says what it has', () => {
    const live = new FakeLive();
    const model = new RunModel(live, 'r-1');
    expect(model.isKnown).toBe(false);
    live.say(TOPIC, 'state', { panel: {}, row: { title: 't' } });
    rows(live, 0, [1, 3], [2, 2]);
    rows(live, 2, [3, 1]);
    expect(model.isKnown).toBe(true);
    expect(model.rows.column('epoch')).toEqual([1, 2, 3]);
    expect(live.subscriptions[0].have?.()).toEqual({
      generation: 'g-0',
      rows: 3
    });
  });

  it('keeps what it knows while there is trouble', () => {
    const live = new FakeLive();
    const model = new RunModel(live, 'r-1');
    rows(live, 0, [1, 3]);
    live.say(TOPIC, 'trouble', { message: 'away', remedy: '', problems: [] });
    expect(model.trouble?.message).toBe('away');
    expect(model.rows.count).toBe(1);
    live.say(TOPIC, 'fine', {});
    expect(model.trouble).toBeNull();
  });

  it('says so while the server does not answer', () => {
    const live = new FakeLive();
    const model = new RunModel(live, 'r-1');
    rows(live, 0, [1, 3]);
    live.statusChanged.emit(false);
    expect(model.trouble?.remedy).toContain('reconnects');
    expect(model.rows.count).toBe(1);
    live.statusChanged.emit(true);
    expect(model.trouble).toBeNull();
  });

  it('begins again when rows are missing', () => {
    const live = new FakeLive();
    const model = new RunModel(live, 'r-1');
    rows(live, 0, [1, 3]);
    rows(live, 5, [6, 1]);
    expect(live.subscriptions).toHaveLength(1);
    expect(live.subscriptions[0].have?.()).toEqual({ generation: '', rows: 0 });
    rows(live, 0, [1, 3], [2, 2]);
    expect(model.rows.count).toBe(2);
  });

  it('is shared by all tabs and gone with the last', () => {
    const live = new FakeLive();
    const models = new RunModels(live);
    const first = models.take('r-1');
    expect(models.take('r-1')).toBe(first);
    models.giveBack(first);
    expect(live.subscriptions).toHaveLength(1);
    models.giveBack(first);
    expect(live.subscriptions).toHaveLength(0);
    expect(models.take('r-1')).not.toBe(first);
  });
});

// Rows without numbers: jsdom cannot draw.
describe('LivePanel', () => {
  const page = {
    at: '',
    columns: ['answer'],
    rows: [['']],
    history: [],
    first: 0,
    total: 100
  };
  const samples = vi.fn((first: number) =>
    Promise.resolve({ ...page, rows: [[`answer ${first}`]], first })
  );

  function drawn() {
    const live = new FakeLive();
    const model = new RunModel(live, 'r-1');
    const changed = new Signal<unknown, void>({});
    const charts = { read: () => ({}), keep: () => undefined, changed };
    const host = document.createElement('div');
    document.body.append(host);
    const tryChange = vi.fn();
    const panel = new LivePanel(host, { model, charts, samples, tryChange });
    const state = (state: string) =>
      live.say(TOPIC, 'state', {
        panel: {
          state,
          run_id: 'r-1',
          title: 'mine',
          curve: 'reward',
          samples: { ...page, rows: [['first']], first: 0 }
        },
        row: { state }
      });
    state('RUNNING');
    return { live, host, panel, state };
  }
  const steps = (host: HTMLElement) =>
    host.querySelector<HTMLElement>('.llmops-run')?.dataset.steps;
  const press = (host: HTMLElement, name: string) =>
    [...host.querySelectorAll('button')]
      .find(({ textContent }) => textContent === name)!
      .click();

  it('draws rows as they come, below the name of the run', async () => {
    const { live, host } = drawn();
    rows(live, 0, [1, NaN]);
    rows(live, 1, [2, NaN]);
    await vi.waitFor(() => expect(steps(host)).toBe('2'));
    expect(host.querySelector('.llmops-title')?.textContent).toBe('mine');
    expect(host.querySelector('.llmops-cardtitle')?.textContent).toBe('Reward');
  });

  it('asks the server for samples that are not shown', async () => {
    const { host, state } = drawn();
    const text = () => host.textContent;
    await vi.waitFor(() => expect(text()).toContain('1 to 1 of 100'));
    press(host, 'Next');
    await vi.waitFor(() => expect(text()).toContain('answer 1'));
    samples.mockRejectedValueOnce(new Error('away'));
    press(host, 'Next');
    await vi.waitFor(() => expect(text()).toContain('away'));
    state('SUCCEEDED');
    await vi.waitFor(() => expect(text()).not.toContain('away'));
  });

  it('leaves stopping to the toolbar of its tab', async () => {
    const { host } = drawn();
    await vi.waitFor(() => expect(host.textContent).toContain('Running'));
    expect(host.querySelector('.llmops-stop')?.textContent).toBe('');
  });

  it('is silent once it is disposed of', async () => {
    const { live, host, panel } = drawn();
    rows(live, 0, [1, NaN]);
    await vi.waitFor(() => expect(steps(host)).toBe('1'));
    panel.dispose();
    rows(live, 1, [2, NaN]);
    await new Promise(resolve => requestAnimationFrame(resolve));
    expect(steps(host)).toBe('1');
  });
});
