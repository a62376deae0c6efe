import { nullTranslator } from '@jupyterlab/translation';
import { describe, expect, it, vi } from 'vitest';

import { IClusterModel, ILLMOps, IOperations } from '../../tokens';
import { ActionPreview } from '../../wire';
import { ClusterActions } from '../actions';

const PREVIEW: ActionPreview = {
  cluster: 'one',
  action: 'resume',
  summary: 'Kueue deletes all of its pods, also the head.',
  stops: ['run lora-1'],
  keeps: [],
  needs_confirmation: true
};

function made(queue: string | null) {
  const asked: string[] = [];
  const llmops = {
    request: async (path: string) => {
      asked.push(path);
      return path.includes('/preview') ? PREVIEW : { kind: 'resume' };
    }
  } as unknown as ILLMOps;
  const model = { find: () => ({ info: { queue } }) };
  const operations = { finished: async () => ({ result: {} }) };
  const actions = new ClusterActions(
    llmops,
    model as unknown as IClusterModel,
    operations as unknown as IOperations,
    nullTranslator.load('llmops')
  );
  return { actions, asked };
}

describe('a resume', () => {
  it('asks first where the queue replaces the head', async () => {
    const { actions, asked } = made('team-a');
    const done = actions.run('resume', 'one');
    const dialog = await vi.waitUntil(() =>
      document.querySelector('.jp-Dialog')
    );
    await vi.waitUntil(() =>
      dialog.textContent?.includes('Resume cluster one?')
    );
    await vi.waitUntil(() => dialog.textContent?.includes('run lora-1'));
    dialog.querySelector<HTMLElement>('.jp-mod-reject')?.click();
    await done;
    expect(asked).toEqual(['clusters/one/preview?action=resume']);
  });

  it('starts at once elsewhere', async () => {
    const { actions, asked } = made(null);
    await actions.run('resume', 'one');
    expect(asked).toEqual(['clusters/one/resume']);
  });
});
