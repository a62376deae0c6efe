import { describe, expect, it, vi } from 'vitest';

import { PanelLosses, PanelSamples, RunColumn } from '../../wire';
import { IChartStore } from '../chartTools';
import { IPanelActions, RunPanel } from '../panel';
import { RunData } from '../runData';
import { IPanelState } from '../state';

const HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>';
const NOTHING = { columns: [], rows: [] };
const STATE = {
  run_id: 'tags-1',
  state: 'RUNNING',
  columns: [],
  samples: {
    at: 'after 120 rows',
    columns: ['row', 'prompt', 'answer', HOSTILE],
    rows: [['7', HOSTILE, 'thai', '']],
    history: [],
    first: 0,
    total: 1
  },
  members: { columns: ['', 'rows/s'], rows: [['replica 0', '20']] },
  outputs: [{ what: 'scores', path: `s3://bucket/${HOSTILE}`, size: '' }],
  saves: 'the finished rows'
} satisfies IPanelState;
const NO_STORE: IChartStore = { read: () => null, keep: () => undefined };

function opened(state: IPanelState, actions: Partial<IPanelActions> = {}) {
  const host = document.createElement('div');
  document.body.append(host);
  const data = new RunData();
  data.describe(state.columns ?? []);
  const panel = new RunPanel(host, data, { charts: NO_STORE, ...actions });
  panel.show({ state });
  return { host, panel };
}

async function drawn(
  state: IPanelState,
  actions: Partial<IPanelActions> = {}
): Promise<HTMLElement> {
  const { host } = opened(state, actions);
  await vi.waitFor(() =>
    expect(host.querySelector('.llmops-title')?.textContent).toBe('tags-1')
  );
  return host;
}

const fold = (host: HTMLElement, title: string) =>
  [...host.querySelectorAll<HTMLElement>('details')].find(element =>
    element.textContent?.includes(title)
  );

describe('the panel', () => {
  it('shows what a model wrote as text, never as markup', async () => {
    const host = await drawn(STATE);
    expect(host.querySelectorAll('img, script')).toHaveLength(0);
    const sample = host.querySelector('.llmops-sample');
    expect(sample?.textContent).toContain(HOSTILE);
    const texts = [...host.querySelectorAll('.llmops-sampletext')];
    expect(texts.map(element => element.textContent)).toEqual([
      '7',
      HOSTILE,
      'thai',
      '–'
    ]);
    expect(host.querySelector('.llmops-outputs code')?.textContent).toBe(
      STATE.outputs[0].path
    );
  });

  it('links to the pages of trackers that are of the web, and to nothing else', async () => {
    const trackers = [
      { name: 'mlflow', url: 'https://mlflow.example/#/runs/1', path: '' },
      { name: 'wandb', url: 'javascript:alert(1)', path: HOSTILE }
    ];
    const host = await drawn({ ...STATE, trackers });
    const links = [...host.querySelectorAll('a')].map(({ href, rel }) => [
      href,
      rel
    ]);
    expect(links).toEqual([[trackers[0].url, 'noreferrer noopener']]);
    const list = host.querySelectorAll('.llmops-outputs')[1];
    expect(list.textContent).toContain(HOSTILE);
    expect(host.querySelectorAll('img, script')).toHaveLength(0);
  });

  it('says what a point stands for where there are too many steps', async () => {
    const columns = ['step', 'loss'].map((name): RunColumn => ({
      name,
      label: name,
      unit: 'number'
    }));
    const state = { ...STATE, columns, curve: 'loss' };
    const thin = await drawn({ ...state, every_row: false, stride: 1024 });
    const note = 'up to 1,024 steps are two points';
    await vi.waitFor(() => expect(thin.textContent).toContain(note));
    const csv = [...thin.querySelectorAll('button')].find(
      ({ textContent }) => textContent === 'CSV'
    );
    expect(csv?.title).toContain('run.metrics() has every step');
    const whole = await drawn({ ...state, every_row: true, stride: 1 });
    await vi.waitFor(() => expect(whole.textContent).toContain('Loss'));
    expect(whole.textContent).not.toContain('two points');
  });

  it('shows planned memory beside the measured one where both are known', async () => {
    const bar = { detail: '', left: 0, running: false, interrupted: false };
    const memory = [
      { ...bar, name: 'weights', width: 0.5, text: '2.00 GiB' },
      { ...bar, name: 'measured', width: 1, text: '4.00 GiB (+100%)' }
    ];
    const host = await drawn({ ...STATE, memory });
    const rows = fold(host, 'Memory of a device')?.querySelectorAll(
      '.llmops-phase'
    );
    expect([...(rows ?? [])].map(row => row.textContent)).toEqual([
      'weights2.00 GiB',
      'measured4.00 GiB (+100%)'
    ]);
    const none = await drawn(STATE);
    expect(fold(none, 'Memory of a device')?.hidden).toBe(true);
  });

  it('submits with the change of a verdict where somebody can', async () => {
    const losses = {
      rows: [{ name: 'mfu', detail: '', left: 0, width: 1, text: '1 %' }],
      note: '',
      verdict: 'Bound by data.',
      change: "run.resubmit(**{'data.streaming': False})",
      overrides: ['data.streaming=false']
    } as unknown as PanelLosses;
    const tryChange = vi.fn();
    const names = (host: HTMLElement) =>
      [...host.querySelectorAll<HTMLElement>('.llmops-change button')].map(
        element => element.textContent
      );
    const lab = await drawn({ ...STATE, losses }, { tryChange });
    expect(names(lab)).toEqual(['Submit with this change', 'Copy']);
    lab.querySelector<HTMLElement>('.llmops-change button')?.click();
    expect(tryChange).toHaveBeenCalledWith(['data.streaming=false']);
    expect(names(await drawn({ ...STATE, losses }))).toEqual(['Copy']);
  });

  it('shows samples page by page, and the newest on the first page', async () => {
    const page = (first: number, at: string, count = 2): PanelSamples => ({
      at,
      columns: ['row', 'answer'],
      rows: Array.from({ length: count }, (_, i) => [`${first + i}`, 'x']),
      history: [],
      first,
      total: 5
    });
    const askForSamples = vi.fn();
    const state = { ...STATE, samples: page(0, 'at step 1') };
    const { host, panel } = opened(state, { askForSamples });
    const pager = () => host.querySelector('.llmops-pager')!;
    const says = (text: string) =>
      vi.waitFor(() => expect(pager().textContent).toContain(text));
    const press = (name: string) =>
      [...pager().querySelectorAll('button')]
        .find(({ textContent }) => textContent === name)!
        .click();
    await says('1 to 2 of 5 samples');
    press('Next');
    expect(askForSamples).toHaveBeenCalledWith(2);
    panel.show({ samples: page(2, 'at step 1') });
    await says('3 to 4 of 5 samples');
    panel.show({ state: { ...state, samples: page(0, 'at step 9') } });
    press('Next');
    panel.show({ samples: page(4, 'at step 9', 1) });
    await says('5 to 5 of 5 samples');
    expect(host.querySelectorAll('.llmops-sample')).toHaveLength(1);
    press('Previous');
    press('Previous');
    await says('1 to 2 of 5 samples');
    expect(fold(host, 'Samples')?.textContent).toContain('at step 9');
  });

  it('follows a row over the steps and stays open', async () => {
    const answer = (at: string, text: string) => ({
      at,
      words: [
        ['same ', false],
        [text, at !== '0']
      ] as [string, boolean][],
      more: ''
    });
    const history = [
      { row: '7', answers: [answer('0', 'old'), answer('40', HOSTILE)] }
    ];
    const state = { ...STATE, samples: { ...STATE.samples, history } };
    const { host, panel } = opened(state);
    const answers = () =>
      host.querySelector<HTMLDetailsElement>('.llmops-answers')!;
    await vi.waitFor(() => expect(answers()).not.toBeNull());
    expect(answers().open).toBe(false);
    expect(host.querySelectorAll('img, script')).toHaveLength(0);
    expect([...host.querySelectorAll('mark')].map(m => m.textContent)).toEqual([
      HOSTILE
    ]);
    expect(
      [...answers().querySelectorAll<HTMLElement>('.llmops-sampletext')].every(
        text => text.tabIndex === 0
      )
    ).toBe(true);
    expect(answers().querySelector('summary')?.textContent).toBe(
      '2 answers since step 0'
    );
    answers().open = true;
    await vi.waitFor(() => answers().dispatchEvent(new Event('toggle')));
    const longer = [
      { row: '7', answers: [...history[0].answers, answer('80', 'x')] }
    ];
    panel.show({
      state: { ...state, samples: { ...state.samples, history: longer } }
    });
    await vi.waitFor(() =>
      expect(answers().textContent).toContain('3 answers')
    );
    expect(answers().open).toBe(true);
  });

  it('changes one choice of the charts and leaves what another panel chose', async () => {
    let stored: object = { x: 'step', smoothing: 0 };
    const columns: RunColumn[] = [
      { name: 'step', label: 'step', unit: 'count' },
      { name: 'loss', label: 'loss', unit: 'loss' },
      { name: 'epoch', label: 'epoch', unit: 'number' }
    ];
    const charts: IChartStore = {
      read: () => stored,
      keep: choice => (stored = choice)
    };
    const state = { ...STATE, columns, curve: 'loss' };
    const { host, panel } = opened(state, { charts });
    const log = () =>
      [...host.querySelectorAll<HTMLLabelElement>('.llmops-charttools label')]
        .find(label => label.textContent?.includes('log scale'))
        ?.querySelector('input');
    await vi.waitFor(() => expect(log()).toBeTruthy());
    // Another panel, or the settings' own page.
    stored = { x: 'step', smoothing: 0.5 };
    log()?.click();
    expect(stored).toMatchObject({ smoothing: 0.5, log: true });
    stored = { ...stored, smoothing: 0.9 };
    panel.draw();
    const weight = () => host.querySelector('.llmops-charttools output');
    await vi.waitFor(() => expect(weight()?.textContent).toContain('0.90'));
  });

  it('is headed by the name of its run; the id stands below', async () => {
    const { host } = opened({ ...STATE, title: 'lr 2e-3' });
    const text = (part: string) =>
      host.querySelector(`.llmops-${part}`)?.textContent;
    await vi.waitFor(() => expect(text('title')).toBe('lr 2e-3'));
    expect(text('facts')).toContain('tags-1');
  });

  it('hides samples and replicas that a run does not have', async () => {
    const host = await drawn({
      ...STATE,
      samples: { ...STATE.samples, rows: [] },
      members: NOTHING
    });
    expect(fold(host, 'Samples')?.hidden).toBe(true);
    expect(host.textContent).not.toContain('Replicas');
  });

  it('lists replicas where there are several', async () => {
    const rows = [
      ['replica 0', '20'],
      ['replica 1', '10']
    ];
    const host = await drawn({
      ...STATE,
      members: { columns: ['', 'rows/s'], rows }
    });
    expect(fold(host, 'Replicas (2)')?.textContent).toContain('replica 1');
    // What scrolls is reached by Tab.
    const scroller = host.querySelector<HTMLElement>('.llmops-scroll');
    expect(scroller?.tabIndex).toBe(0);
    expect(scroller?.getAttribute('aria-label')).toBe('Replicas');
  });

  it('says what a run of the kind saves when it is stopped', async () => {
    const host = await drawn(STATE, { stop: () => undefined });
    const stop = host.querySelector<HTMLButtonElement>('.llmops-stop button');
    stop?.click();
    expect(host.querySelector('.llmops-stop')?.textContent).toContain(
      'Stop and save the finished rows?'
    );
  });

  it('has no button for stopping where one is beside it, but says that it stops', async () => {
    const running = await drawn(STATE);
    expect(running.querySelector('.llmops-stop')?.textContent).toBe('');
    const stopping = await drawn({ ...STATE, state: 'STOPPING' });
    expect(stopping.querySelector('.llmops-stop')?.textContent).toBe(
      'Saving the finished rows, then stopping…'
    );
  });

  it('has no second row of charts before anything is measured', async () => {
    const system = {
      x_label: 'minutes since the first sample',
      x: [],
      charts: [],
      workers: NOTHING,
      hosts: NOTHING,
      note: ''
    };
    const host = await drawn({ ...STATE, system });
    const row = fold(host, 'System: GPUs, hosts and workers');
    expect(row?.hidden).toBe(true);
    const power = { key: 'power', title: 'GPU power', unit: ' W' };
    const lines = [{ label: 'rank 0', values: [null] }]; // No canvas here.
    const workers = { columns: ['rank', 'host'], rows: [['0', HOSTILE]] };
    const measured = {
      ...system,
      x: [0],
      charts: [{ ...power, lines }],
      workers
    };
    const later = await drawn({ ...STATE, system: measured });
    const charts = fold(later, 'System') as HTMLDetailsElement;
    expect(charts.hidden).toBe(false);
    // Folded until it is known to have room; a key opens it.
    expect(charts.open).toBe(false);
    expect(charts.querySelector('[data-chart]')).toBeNull();
    charts.open = true;
    charts.dispatchEvent(new Event('toggle'));
    expect(charts.querySelector('[data-chart=power]')).not.toBeNull();
    expect(charts.textContent).toContain(HOSTILE);
  });

  it('says where the workers stand as long as no step ends', async () => {
    const groups = { columns: ['ranks', 'state'], rows: [['1', 'stopped']] };
    const message = 'No step for 9 s after step 12.';
    const stall = { message, groups, stacks: 'ranks 1: stopped' };
    const host = await drawn({ ...STATE, stall });
    const box = host.querySelector<HTMLElement>('.llmops-stall');
    expect(box?.hidden).toBe(false);
    expect(box?.getAttribute('role')).toBe('alert');
    expect(box?.textContent).toContain('stopped');
    const later = await drawn({ ...STATE, stall: null });
    expect(later.querySelector<HTMLElement>('.llmops-stall')?.hidden).toBe(
      true
    );
  });
});
