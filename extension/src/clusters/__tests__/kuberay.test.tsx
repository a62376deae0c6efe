import * as React from 'react';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';
import { describe, expect, it, vi } from 'vitest';

import { ClusterInfo, ClusterRow } from '../../wire';
import { deadline, isSoon, Notes } from '../notes';
import { changes, numbersOf } from '../scaleDialog';

function info(values: Partial<ClusterInfo> = {}): ClusterInfo {
  return {
    state: 'ready',
    message: '',
    remedy: '',
    num_cpus: 4,
    num_gpus: null,
    groups: [],
    waiting: [],
    suspends_at_s: null,
    ends_at_s: null,
    kept_until_s: null,
    ...values
  } as ClusterInfo;
}

describe('when a cluster goes away', () => {
  it.each([
    [{}, ''],
    [{ suspends_at_s: 1600 }, 'suspends in 10 min'],
    [{ suspends_at_s: 1600, ends_at_s: 1300 }, 'ends in 5 min'],
    [{ suspends_at_s: 1300, ends_at_s: 1600 }, 'suspends in 5 min'],
    [{ suspends_at_s: 900 }, 'suspends in 0.0 s'],
    [{ suspends_at_s: 1600, kept_until_s: 8200 }, 'kept for 2 h'],
    // A wish that is over says nothing any more.
    [{ suspends_at_s: 1600, kept_until_s: 900 }, 'suspends in 10 min']
  ])('%o', (values, told) => {
    expect(deadline(info(values), 1000)).toBe(told);
  });

  it('asks only when it is soon, and not of one that is kept', () => {
    expect(isSoon(info(), 1000)).toBe(false);
    expect(isSoon(info({ suspends_at_s: 5000 }), 1000)).toBe(false);
    expect(isSoon(info({ suspends_at_s: 1500 }), 1000)).toBe(true);
    const kept = info({ suspends_at_s: 1500, kept_until_s: 1400 });
    expect(isSoon(kept, 1000)).toBe(false);
  });
});

describe('numbers that can be changed', () => {
  const group = {
    name: 'h100',
    replicas: 2,
    hosts: 1,
    pods: 2,
    ready: 1,
    min_replicas: 0,
    max_replicas: 4
  };

  it('are worker groups where there are any', () => {
    const numbers = numbersOf(info({ groups: [group] }));
    expect(numbers.map(({ name, now, max }) => [name, now, max])).toEqual([
      ['h100', 2, 4]
    ]);
    expect(changes(numbers, new Map([['h100', 4]]))).toEqual({
      workers: { h100: 4 }
    });
    expect(changes(numbers, new Map([['h100', 2]]))).toBeNull();
    expect(changes(numbers, new Map())).toBeNull();
  });

  it('are CPUs and GPUs of a local cluster', () => {
    const numbers = numbersOf(info());
    expect(changes(numbers, new Map([['num_cpus', 2]]))).toEqual({
      num_cpus: 2
    });
    expect(changes(numbers, new Map([['num_cpus', 4]]))).toBeNull();
  });
});

describe('notes of a cluster', () => {
  function shown(values: Partial<ClusterInfo>, keep = vi.fn()): HTMLElement {
    const node = document.createElement('div');
    const row = { name: 'gpu', info: info(values), stale: '', doing: '' };
    flushSync(() =>
      createRoot(node).render(
        <Notes row={row as ClusterRow} nowS={1000} keep={keep as () => void} />
      )
    );
    return node;
  }

  it('tell each reason with its remedy, once', () => {
    const message = '2 of 4 workers wait: queue team-a is at 16 of 16';
    const waiting = [
      { message, remedy: 'stop a run', kind: 'quota', is_stuck: false }
    ];
    const text = shown({ state: 'starting', message, waiting }).textContent;
    expect(text).toBe(`${message}Try: stop a run`);
  });

  it('offer to keep it', () => {
    const keep = vi.fn();
    const node = shown({ suspends_at_s: 1300 }, keep);
    expect(node.textContent).toContain('suspends in 5 min');
    node.querySelector('button')?.click();
    expect(keep).toHaveBeenCalledOnce();
  });

  it('are silent where nothing is odd', () => {
    expect(shown({}).innerHTML).toBe('');
    expect(shown({ state: 'stopped', remedy: 'resume it' }).innerHTML).toBe('');
  });
});
