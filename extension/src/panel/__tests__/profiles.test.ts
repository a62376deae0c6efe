import { describe, expect, it, vi } from 'vitest';

import { CallTime, PanelProfiles, ProfileDetail } from '../../wire';
import { FlameGraph, placed } from '../flame';
import { IPanelActions, RunPanel } from '../panel';
import { RunData } from '../runData';

const HOSTILE = '<img src=x onerror="alert(1)">'.padEnd(160, 'x');
const NOTHING = { columns: [], rows: [] };

function call(
  name: string,
  caller: number | null,
  cpu_s: number,
  device_s: number | null = null
): CallTime {
  return {
    name,
    caller,
    cpu_s,
    device_s,
    calls: 1,
    self_cpu_s: 0,
    self_device_s: null
  };
}

const CALLS = [
  call('thread 1', null, 8, 2),
  call('backward', 0, 2, 2),
  call('Linear', 0, 4, 0),
  call(HOSTILE, 2, 3, 0),
  call('tiny', 2, 0.000_001, 0)
];
const DONE: PanelProfiles = {
  can: true,
  now: '',
  done: [
    { number: 0, title: 'step 2', first: 2, last: 2, note: '', path: '/a' },
    {
      number: 1,
      title: 'steps 12 to 14',
      first: 12,
      last: 14,
      note: 'The steps took 1.2 s',
      path: '/runs/a/profiles/12-14'
    }
  ],
  operators: { columns: ['operator', 'calls'], rows: [[HOSTILE, '3']] }
};
const DETAIL: ProfileDetail = {
  number: 1,
  operators: DONE.operators,
  calls: CALLS,
  groups: {
    columns: ['ranks', 'state', 'at'],
    rows: [['0, 1', 'code', 'a.py:3']]
  },
  stacks: 'rank 0: code'
};

async function opened(
  profiles: PanelProfiles,
  actions: Partial<IPanelActions> = {}
) {
  const host = document.createElement('div');
  document.body.append(host);
  const charts = { read: () => null, keep: () => undefined };
  const panel = new RunPanel(host, new RunData(), { charts, ...actions });
  panel.show({ state: { run_id: 'r-1', profiles } });
  const part = () => host.querySelector<HTMLElement>('.llmops-profiles')!;
  await vi.waitFor(() => expect(part().hidden).toBe(false));
  return { panel, part: part() };
}

describe('places of calls', () => {
  const shares = (...args: Parameters<typeof placed>) =>
    placed(...args).map(({ index, depth, left, width }) => [
      index,
      depth,
      left,
      width
    ]);

  it('are below the caller, the longest first, without what nobody can see', () => {
    expect(shares(CALLS, 'cpu')).toEqual([
      [0, 0, 0, 1],
      [2, 1, 0, 0.5],
      [3, 2, 0, 0.375],
      [1, 1, 0.5, 0.25]
    ]);
    expect(shares(CALLS, 'device')).toEqual([
      [0, 0, 0, 1],
      [1, 1, 0, 1]
    ]);
    expect(shares([], 'cpu')).toEqual([]);
  });

  it('of one call fill the width, below its callers', () => {
    expect(shares(CALLS, 'cpu', 2)).toEqual([
      [0, 0, 0, 1],
      [2, 1, 0, 1],
      [3, 2, 0, 0.75]
    ]);
  });
});

describe('the flame graph', () => {
  it('is read by keys, and shows names as text', () => {
    const graph = new FlameGraph();
    document.body.append(graph.element);
    graph.show(CALLS.map(one => ({ ...one, device_s: null })));
    expect(graph.element.querySelectorAll('img')).toHaveLength(0);
    const svg = graph.element.querySelector('svg')!;
    const inOrder = () =>
      svg.querySelector('[tabindex="0"]')?.getAttribute('aria-label');
    const press = (key: string) =>
      svg.dispatchEvent(new KeyboardEvent('keydown', { key }));
    expect(inOrder()).toContain('thread 1: 100.0 %');
    press('ArrowDown');
    expect(inOrder()).toContain('Linear, 1 call: 50.0 %');
    press('ArrowRight');
    expect(inOrder()).toContain('backward');
    press('ArrowLeft');
    press('Enter');
    expect(svg.querySelectorAll('[role="treeitem"]')).toHaveLength(3);
    press('ArrowDown');
    expect(inOrder()).toContain(HOSTILE);
    press('Escape');
    expect(svg.querySelectorAll('[role="treeitem"]')).toHaveLength(4);
  });
});

describe('a stalled run', () => {
  const stall = { message: 'No step', groups: NOTHING, stacks: 'rank 0: code' };

  it('is restarted after a question', async () => {
    const restart = vi.fn(() => Promise.resolve());
    const { panel, part } = await opened(DONE, { restart });
    panel.show({ state: { profiles: DONE, stall } });
    const box = part
      .closest('.llmops-run')!
      .querySelector<HTMLElement>('.llmops-stall')!;
    await vi.waitFor(() => expect(box.hidden).toBe(false));
    const press = (text: string) =>
      [...box.querySelectorAll('button')]
        .find(({ textContent }) => textContent === text)!
        .click();
    press('Restart from the last checkpoint');
    press('Wait');
    press('Restart from the last checkpoint');
    expect(restart).not.toHaveBeenCalled();
    press('Restart');
    expect(restart).toHaveBeenCalledOnce();
    await vi.waitFor(() => press('Restart from the last checkpoint'));
    expect(box.textContent).toContain('Dump stacks');
  });
});

describe('the profiler of a panel', () => {
  it('asks for a profile once, and says what becomes of it', async () => {
    let answer = () => undefined as void;
    const profile = vi.fn(() => new Promise<void>(done => (answer = done)));
    const { panel, part } = await opened({ ...DONE, done: [] }, { profile });
    const button = part.querySelector('button')!;
    button.click();
    expect(profile).toHaveBeenCalledExactlyOnceWith(3);
    expect(button.disabled).toBe(true);
    expect(part.textContent).toContain('Asking the run');
    answer();
    await vi.waitFor(() => expect(button.disabled).toBe(false));
    const now = 'Profiling steps 12 to 14…';
    panel.show({ state: { profiles: { ...DONE, done: [], now } } });
    await vi.waitFor(() => expect(part.textContent).toContain(now));
    expect(button.disabled).toBe(true);
  });

  it('is not there for a run that has none and can have none', async () => {
    const { panel, part } = await opened(DONE, { profile: vi.fn() });
    panel.show({ state: { profiles: { ...DONE, can: false, done: [] } } });
    await vi.waitFor(() => expect(part.hidden).toBe(true));
  });

  it('gets the calls of the profile that is opened, once', async () => {
    const askForProfile = vi.fn();
    const { panel, part } = await opened(DONE, { askForProfile });
    expect(part.querySelector('button')?.hidden).toBe(true);
    expect(askForProfile).not.toHaveBeenCalled();
    expect(part.textContent).toContain('/runs/a/profiles/12-14');
    const fold = part.querySelector('details')!;
    fold.open = true;
    await vi.waitFor(() => expect(askForProfile).toHaveBeenCalledWith(1));
    panel.show({ profile: DETAIL });
    await vi.waitFor(() =>
      expect(part.querySelectorAll('[role="treeitem"]')).toHaveLength(2)
    );
    expect(part.textContent).toContain('a.py:3');
    expect(part.querySelector('pre')?.textContent).toBe('rank 0: code');
    expect(part.querySelectorAll('img')).toHaveLength(0);
    const select = part.querySelector('select')!;
    select.value = '0';
    select.dispatchEvent(new Event('change'));
    expect(askForProfile.mock.calls).toEqual([[1], [0]]);
    expect(part.querySelectorAll('[role="treeitem"]')).toHaveLength(0);
  });
});
