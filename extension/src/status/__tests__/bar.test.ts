import { nullTranslator } from '@jupyterlab/translation';
import { describe, expect, it } from 'vitest';

import { ClusterInfo, ClusterRow, RunRow } from '../../wire';
import { statusText } from '../bar';

const RUN = { state: 'RUNNING' } as RunRow;
const TRANS = nullTranslator.load('llmops');

function row(name: string, provider: string, info: Partial<ClusterInfo>) {
  return {
    name,
    provider,
    info: { state: 'ready', num_gpus: 0, gpus_used: 0, ...info }
  } as ClusterRow;
}

describe('statusText', () => {
  it('counts the machine of several local clusters once', () => {
    const local = [
      row('a', 'local', { num_cpus: 8, cpus_used: 2 }),
      row('b', 'local', { num_cpus: 4, cpus_used: 1 })
    ];
    expect(statusText(local, [], TRANS)).toBe('2 clusters · CPUs 3/8 · 0 runs');
    const far = row('c', 'kuberay', { num_cpus: 16, cpus_used: 16 });
    expect(statusText([...local, far], [RUN], TRANS)).toBe(
      '3 clusters · CPUs 19/24 · 1 run'
    );
  });

  it('does not know the sum of what is not all known', () => {
    const rows = [
      row('a', 'local', { num_cpus: null, cpus_used: 1 }),
      row('b', 'local', { num_cpus: 4, cpus_used: 1 })
    ];
    expect(statusText(rows, [], TRANS)).toBe('2 clusters · CPUs 2/– · 0 runs');
  });
});
