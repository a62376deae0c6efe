import { Notification } from '@jupyterlab/apputils';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { RunRow } from '../../wire';
import { runsText } from '../bar';
import { EndNotices, INotices, SHOWN_MS } from '../endNotices';

function run(run_id: string, state: string, message = ''): RunRow {
  const rest = { title: '', remedy: '', figures: [] };
  return { run_id, state, message, ...rest } as unknown as RunRow;
}

interface IShown {
  message: string;
  type: string;
  autoClose: number | false | undefined;
  label: string;
}

/** What Lab's notification centre holds. */
class Centre implements INotices {
  shown = new Map<string, IShown>();
  emitted = 0;

  notify(
    message: string,
    type: Notification.TypeOptions,
    options: Notification.IOptions<never>
  ): string {
    const id = `n${++this.emitted}`;
    const label = options.actions?.[0].label ?? '';
    this.shown.set(id, { message, type, autoClose: options.autoClose, label });
    return id;
  }

  update(args: Parameters<INotices['update']>[0]): boolean {
    const known = this.shown.get(args.id);
    if (!known) {
      return false;
    }
    const label = args.actions?.[0].label ?? '';
    const type = args.type ?? known.type;
    const { message, autoClose } = args;
    this.shown.set(args.id, { message, type, autoClose, label });
    return true;
  }

  dismiss(id: string): void {
    this.shown.delete(id);
  }
}

describe('notifications of runs that end', () => {
  let centre: Centre;
  let notices: EndNotices;

  beforeEach(() => {
    vi.useFakeTimers();
    centre = new Centre();
    notices = new EndNotices(centre, () => undefined);
  });
  afterEach(() => {
    notices.dispose();
    vi.useRealTimers();
  });

  it('go away, also from the bell', () => {
    notices.add(run('a', 'SUCCEEDED'));
    expect([...centre.shown.values()]).toEqual([
      {
        message: 'Run a succeeded',
        type: 'success',
        autoClose: SHOWN_MS,
        label: 'Open run'
      }
    ]);
    vi.advanceTimersByTime(SHOWN_MS);
    expect(centre.shown.size).toBe(0);
  });

  it('are one for runs that end soon after each other', () => {
    ['a', 'b', 'b', 'c'].forEach(id => notices.add(run(id, 'SUCCEEDED')));
    notices.add(run('d', 'STOPPED'));
    const [only, ...more] = centre.shown.values();
    expect(more).toEqual([]);
    expect(only.message).toBe('4 runs ended: 3 succeeded, 1 stopped');
    expect(only.label).toBe('Show runs');
    vi.advanceTimersByTime(SHOWN_MS);
    notices.add(run('e', 'SUCCEEDED'));
    expect([...centre.shown.values()].map(one => one.message)).toEqual([
      'Run e succeeded'
    ]);
  });

  it('of failures stay, in the bell only, one for each reason', () => {
    notices.add(run('a', 'FAILED', 'No disk'));
    notices.add(run('b', 'FAILED', 'No memory'));
    notices.add(run('c', 'FAILED', 'No disk'));
    notices.add(run('d', 'SUCCEEDED'));
    vi.advanceTimersByTime(10 * SHOWN_MS);
    expect([...centre.shown.values()]).toEqual([
      {
        message: '2 runs failed: No disk',
        type: 'error',
        autoClose: 0,
        label: 'Show runs'
      },
      {
        message: 'Run b failed: No memory',
        type: 'error',
        autoClose: 0,
        label: 'Open run'
      }
    ]);
  });

  it('begin again where the user has dismissed the one before', () => {
    notices.add(run('a', 'FAILED', 'No disk'));
    centre.dismiss('n1');
    notices.add(run('b', 'FAILED', 'No disk'));
    expect([...centre.shown.values()].map(one => one.message)).toEqual([
      'Run b failed: No disk'
    ]);
  });
});

describe('the status bar', () => {
  it('counts the runs that wait for resources', () => {
    const states = (...all: RunRow['state'][]) => all.map(state => ({ state }));
    expect(runsText([])).toBe('0 runs');
    expect(runsText(states('RUNNING', 'PENDING'))).toBe('2 runs');
    expect(runsText(states('RUNNING', 'QUEUED'))).toBe('2 runs (1 queued)');
  });
});
