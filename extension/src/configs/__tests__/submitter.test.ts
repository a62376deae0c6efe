import { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import { beforeEach, describe, expect, it, vi } from 'vitest';

import {
  IClusterModel,
  ILLMOps,
  IOperations,
  IPreferences
} from '../../tokens';
import { ClusterRow, OperationInfo } from '../../wire';
import { ClusterChoice } from '../choice';
import { readiness, Submitter } from '../submitter';
import { isScript } from '../scriptCommand';

vi.mock('../../ui/dialogs', () => ({
  confirm: vi.fn(async () => true),
  showError: vi.fn(async () => undefined)
}));
const dialogs = await import('../../ui/dialogs');

class Clusters {
  clusters: ClusterRow[] = [];
  isKnown = true;
  changed = new Signal<this, void>(this);
  find(name: string) {
    return this.clusters.find(row => row.name === name);
  }
  set(name: string, state: string, resume = '') {
    const info = { state, message: 'why', actions: { resume } };
    this.clusters = [{ name, doing: '', info } as unknown as ClusterRow];
    this.changed.emit();
  }
}

const operation = (result: object): OperationInfo =>
  ({ id: 'o', kind: 'submit', what: 'x', state: 'done', result }) as never;

function fakes(clusters: Clusters) {
  const asked: [string, unknown][] = [];
  const opened: unknown[] = [];
  const commands = new CommandRegistry();
  commands.addCommand('llmops:open-run', {
    execute: args => void opened.push(args.runId)
  });
  const llmops = {
    request: async (path: string, options: { body: unknown }) => {
      asked.push([path, options.body]);
      return operation({});
    }
  } as unknown as ILLMOps;
  const operations = {
    finished: async () => operation({ run_id: 'run-1' })
  } as unknown as IOperations;
  const preferences = {
    defaultCluster: '',
    openRunOnSubmit: true,
    refuseTooLarge: true,
    changed: new Signal<object, void>({})
  } as unknown as IPreferences;
  const model = clusters as unknown as IClusterModel;
  const choice = new ClusterChoice(model, preferences);
  const services = { llmops, operations, preferences, commands, choice };
  return { submitter: new Submitter(services), asked, opened, choice };
}

beforeEach(() => {
  vi.clearAllMocks();
  window.localStorage.clear();
});

describe('a submission', () => {
  it('goes to a cluster that is ready, and opens its run', async () => {
    const clusters = new Clusters();
    clusters.set('a', 'ready');
    const { submitter, asked, opened, choice } = fakes(clusters);
    await submitter.submit({ path: 'x.train.yaml' }, choice.name, ['a.b=1']);
    expect(asked).toEqual([
      [
        'runs',
        {
          path: 'x.train.yaml',
          cluster: 'a',
          overrides: ['a.b=1'],
          strict: true
        }
      ]
    ]);
    expect(opened).toEqual(['run-1']);
  });

  it('is one for a double click', async () => {
    const clusters = new Clusters();
    clusters.set('a', 'ready');
    const { submitter, asked } = fakes(clusters);
    const what = { path: 'x.train.yaml' };
    await Promise.all([
      submitter.submit(what, 'a'),
      submitter.submit(what, 'a')
    ]);
    expect(asked.length).toBe(1);
    await submitter.submit(what, 'a');
    expect(asked.length).toBe(2);
  });

  it.each([
    ['', 'clusters/a/resume', {}],
    ['it never ran', 'clusters', { template: 'a' }]
  ])('starts a stopped cluster (%s)', async (why, path, body) => {
    const clusters = new Clusters();
    clusters.set('a', 'stopped', why);
    const { submitter, asked } = fakes(clusters);
    await submitter.submit({ path: 'x.train.yaml' }, 'a');
    expect(asked[0]).toEqual([path, body]);
    expect(asked[1][0]).toBe('runs');
  });

  it('does nothing when the user does not want the cluster started', async () => {
    vi.mocked(dialogs.confirm).mockResolvedValueOnce(false);
    const clusters = new Clusters();
    clusters.set('a', 'dead');
    const { submitter, asked } = fakes(clusters);
    await submitter.submit({ path: 'x.train.yaml' }, 'a');
    expect(asked).toEqual([]);
  });

  it('offers to make a cluster when there is none', async () => {
    const { submitter, asked, choice } = fakes(new Clusters());
    vi.mocked(dialogs.confirm).mockResolvedValueOnce(false);
    await submitter.submit({ path: 'x.train.yaml' }, choice.name);
    expect(dialogs.confirm).toHaveBeenCalledOnce();
    expect(asked).toEqual([]);
  });
});

describe('a cluster that is starting', () => {
  it('is waited for', async () => {
    const clusters = new Clusters();
    clusters.set('a', 'starting');
    const ready = readiness(clusters as unknown as IClusterModel, 'a');
    clusters.set('a', 'ready');
    await expect(ready).resolves.toBeUndefined();
  });
  it('may die', async () => {
    const clusters = new Clusters();
    clusters.set('a', 'starting');
    const ready = readiness(clusters as unknown as IClusterModel, 'a');
    clusters.set('a', 'dead');
    await expect(ready).rejects.toThrow('why');
  });
});

describe('a script', () => {
  it.each([
    ['train.py', true],
    ['a/b.script.yaml', false],
    ['lora.train.yaml', false],
    ['notes.python', false],
    [undefined, false]
  ])('%s: %s', (path, expected) => expect(isScript(path)).toBe(expected));
});
