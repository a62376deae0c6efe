import { DisposableDelegate } from '@lumino/disposable';
import { describe, expect, it } from 'vitest';

import { ILive, LiveMessage } from '../../tokens';
import { DASH } from '../../ui/format';
import { FigureValue, RunRow } from '../../wire';
import { sparkPath } from '../../ui/parts';
import { endText } from '../../status/endNotices';
import { grouped, knownFigures, matches, RunsModel } from '../model';
import { figures, when, why } from '../row';
import { row } from './runRow';

function figure(label: string, text: string, listed: boolean): FigureValue {
  return { key: label, label, text, listed } as FigureValue;
}

class FakeLive {
  say: (message: Partial<LiveMessage>) => void = () => undefined;

  subscribe(_: string, listener: (message: LiveMessage) => void) {
    this.say = message =>
      listener({ data: {}, payload: null, kind: '', ...message });
    return new DisposableDelegate(() => undefined);
  }
}

function made(
  ask: (runId: string) => Promise<RunRow> = () => Promise.reject(new Error())
): [RunsModel, FakeLive] {
  const live = new FakeLive();
  return [new RunsModel(live as unknown as ILive, ask), live];
}

const list = (runs: RunRow[], whole = false, removed: string[] = []) => ({
  kind: 'runs',
  data: { runs, removed, whole }
});

describe('RunsModel', () => {
  it('knows nothing before the first answer, which may be an empty list', () => {
    const [model, live] = made();
    expect(model.isKnown).toBe(false);
    live.say(list([], true));
    expect([model.isKnown, model.runs.length]).toEqual([true, 0]);
  });

  it('reads a run that is older than those of the list, and keeps it', async () => {
    const asked: string[] = [];
    const [model, live] = made(async runId => {
      asked.push(runId);
      return row(runId, { title: 'Old', kind: 'score', actions: ['retry'] });
    });
    let changes = 0;
    live.say(list([row('new')], true));
    model.changed.connect(() => changes++);
    expect(model.find('old')).toBeUndefined();
    expect((await model.read('old')).title).toBe('Old');
    expect(model.find('old')?.actions).toEqual(['retry']);
    expect(model.runs.map(run => run.run_id)).toEqual(['new']);
    expect(changes).toBe(1);
    await model.read('old');
    expect([asked, changes]).toEqual([['old', 'old'], 1]);
    expect((await model.read('new')).run_id).toBe('new');
    expect(asked).toHaveLength(2);
  });

  it('finds a run by what it differs in', () => {
    const run = row('lora-1', { differs: 'lr 2e-3 · r 16' });
    expect(matches(run, '2e-3')).toBe(true);
    expect(matches(run, 'r 32')).toBe(false);
  });

  it('takes what a panel shows of an older run, until the list has it', () => {
    const [model, live] = made();
    live.say(list([row('new')], true));
    model.learn(row('old', { starred: true }));
    model.learn(row('new', { starred: true }));
    expect(model.find('old')?.starred).toBe(true);
    expect(model.find('new')?.starred).toBe(false);
    live.say(list([row('old')]));
    expect(model.find('old')?.starred).toBe(false);
  });

  it('forgets an older run that cannot be read any more', async () => {
    const [model, live] = made();
    live.say(list([], true));
    model.learn(row('old'));
    await expect(model.read('old')).rejects.toThrow();
    expect(model.find('old')).toBeUndefined();
  });

  it('keeps what it had when the server is in trouble', () => {
    const [model, live] = made();
    live.say(list([row('a')], true));
    live.say({ kind: 'trouble', data: { message: 'disk', remedy: 'wait' } });
    expect(model.trouble?.message).toBe('disk');
    expect(model.runs.map(run => run.run_id)).toEqual(['a']);
    live.say({ kind: 'fine' });
    expect(model.trouble).toBeNull();
  });

  it('puts the newest first, takes changes, and forgets what is deleted', () => {
    const [model, live] = made();
    live.say(list([row('old'), row('new', { created_s: 200 })], true));
    live.say(list([row('old', { message: 'x' })]));
    expect(model.runs.map(run => run.run_id)).toEqual(['new', 'old']);
    expect(model.find('old')?.message).toBe('x');
    model.select('new', true);
    live.say(list([], false, ['new']));
    expect(model.runs.map(run => run.run_id)).toEqual(['old']);
    expect(model.selected.size).toBe(0);
  });

  it('tells the end of a run once, and not of those that had ended before', () => {
    const [model, live] = made();
    const ended: string[] = [];
    model.ended.connect((_, run) => ended.push(run.run_id));
    live.say(list([row('a'), row('b', { state: 'FAILED' })], true));
    live.say(list([row('a', { state: 'SUCCEEDED' })]));
    live.say(list([row('a', { state: 'SUCCEEDED', title: 'x' })]));
    live.say(list([row('b', { state: 'FAILED', title: 'named' })]));
    live.say(list([row('b', { state: 'FAILED', attempt: 2 })]));
    expect(ended).toEqual(['a', 'b']);
  });

  it('does not repeat old ends after a reconnection', () => {
    const [model, live] = made();
    const ended: string[] = [];
    model.ended.connect((_, run) => ended.push(run.run_id));
    const rows = [row('a', { state: 'SUCCEEDED' }), row('b')];
    live.say(list(rows, true));
    live.say(list([rows[0], row('b', { state: 'STOPPED' })], true));
    expect(ended).toEqual(['b']);
  });
});

describe('the list', () => {
  it('is filtered by all words, in any field', () => {
    const run = row('lora-1', { title: 'Best So Far', cluster: 'team' });
    expect(matches(run, 'best team')).toBe(true);
    expect(matches(run, 'best local')).toBe(false);
    expect(matches(run, '')).toBe(true);
  });

  it('is grouped by cluster in the order of the newest run', () => {
    const runs = [
      row('3', { cluster: 'b' }),
      row('2'),
      row('1', { cluster: 'b' })
    ];
    expect(grouped(runs).map(g => [g.cluster, g.runs.length])).toEqual([
      ['b', 2],
      ['local', 1]
    ]);
  });

  it('leaves out figures that are not known', () => {
    expect(figures(row('a'))).toEqual(['no progress yet']);
    const run = row('a', {
      progress: { done: 5, total: 10, unit: 'rows' },
      figures: [
        figure('reward', '1.235', true),
        figure('idle', DASH, true),
        figure('exit status', '0', false)
      ]
    });
    expect(figures(run)).toEqual(['5 / 10 rows', 'reward 1.235']);
    expect(knownFigures(run)).toEqual(['reward 1.235', 'exit status 0']);
  });

  it('tells the time that matters', () => {
    expect(when(row('a'), 160)).toBe('60 s so far');
    expect(when(row('a', { eta_s: 7 }), 160)).toBe('7.0 s left');
    const least = row('a', { eta_s: 7, eta_is_least: true });
    expect(when(least, 160)).toBe('> 7.0 s left');
    expect(when(row('a', { state: 'FAILED' }), 160)).toBe('60 s ago');
    expect(when(row('a', { state: 'FAILED' }), 101)).toBe('just now');
  });
});

describe('sparkPath', () => {
  it('needs two values that are known', () => {
    expect(sparkPath([2])).toBe('');
    expect(sparkPath([2, null, NaN])).toBe('');
  });

  it('goes from left to right, high values on top', () => {
    expect(sparkPath([1, 2, 0])).toBe('M0.0,12.0L50.0,2.0L100.0,22.0');
  });
});

describe('the notification', () => {
  it('tells reason and remedy of a failure, and is never endless', () => {
    const run = row('a', {
      state: 'FAILED',
      message: 'no memory',
      remedy: 'less'
    });
    expect(endText(run)).toBe('Run lora (a) failed: no memory\nTry: less');
    const long = row('a', { state: 'FAILED', message: 'x'.repeat(5000) });
    expect(endText(long).length).toBeLessThanOrEqual(400);
  });

  it('has the first figure of the kind after a success', () => {
    const run = row('a', {
      state: 'SUCCEEDED',
      figures: [figure('reward', '1.2', true)]
    });
    expect(endText(run)).toBe('Run lora (a) succeeded: reward 1.2');
    expect(endText({ ...run, figures: [] })).toBe('Run lora (a) succeeded');
    const rate = figure('rows/s', '106', true);
    const scored = {
      ...run,
      figures: [{ ...rate, unit: 'per_second' as const }]
    };
    expect(endText(scored)).toBe('Run lora (a) succeeded: 106 rows/s');
  });
});

describe('what a row says about its state', () => {
  it('is what it waits for, or why it has failed', () => {
    const reason = 'Place 1 of 1 in the queue: needs 2 CPUs';
    const queued = row('a', { state: 'QUEUED', reason });
    expect(why(queued)).toBe(reason);
    expect(figures(queued)).toEqual([]);
    const message = 'No space left';
    expect(why(row('a', { state: 'FAILED', message }))).toBe(message);
    expect(why(row('a', { state: 'STOPPED', message }))).toBe('');
    expect(why(row('a'))).toBe('');
  });
});
