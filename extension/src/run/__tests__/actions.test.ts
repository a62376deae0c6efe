import { InputDialog } from '@jupyterlab/apputils';
import { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import { afterEach, describe, expect, it, vi } from 'vitest';

import { CommandIDs } from '../../commands';
import { ILLMOps, IOperations, IPreferences, IRequest } from '../../tokens';
import { RunRow } from '../../wire';
import { RunsModel } from '../../runs/model';
import { RunActions } from '../actions';
import { addRunCommands } from '../commands';
import { FakeLive } from './fakes';
/** A run that is not among those of the side bar. */
const OLD = {
  run_id: 'old',
  kind: 'score',
  name: 'tags',
  title: 'Baseline',
  differs: '',
  starred: true,
  cluster: 'gpus',
  state: 'SUCCEEDED',
  actions: ['resubmit', 'delete'],
  submission_id: 'raysubmit_1'
} as unknown as RunRow;

function made() {
  const sent: [string, IRequest | undefined][] = [];
  const llmops = {
    request: async (path: string, options?: IRequest) => {
      sent.push([path, options]);
      return { row: OLD, config_yaml: 'engine: {}\n' };
    }
  } as unknown as ILLMOps;
  const commands = new CommandRegistry();
  const opened: unknown[] = [];
  commands.addCommand(CommandIDs.openDashboard, {
    execute: args => opened.push(args)
  });
  const runs = new RunsModel(new FakeLive(), async () => OLD);
  const edit = vi.fn(async () => null);
  const actions = new RunActions({
    llmops,
    operations: {
      changed: new Signal({}),
      finished: async () => ({})
    } as unknown as IOperations,
    runs,
    preferences: {} as IPreferences,
    commands,
    edit
  });
  addRunCommands({
    commands,
    runs,
    actions,
    notebooks: null,
    shown: () => null
  });
  const changes = () =>
    sent.filter(([, options]) => options?.method === 'PATCH');
  return { actions, commands, runs, edit, opened, changes, sent };
}

function answer(value: string, accept = true) {
  return vi
    .spyOn(InputDialog, 'getText')
    .mockImplementation(
      async () =>
        ({ value, button: { accept } }) as Awaited<
          ReturnType<typeof InputDialog.getText>
        >
    );
}

describe('actions on a run that is older than those of the side bar', () => {
  afterEach(() => void vi.restoreAllMocks());

  it('take its star off', async () => {
    const { actions, changes } = made();
    await actions.star('old');
    expect(changes().map(([, options]) => options?.body)).toEqual([
      { starred: false }
    ]);
  });

  it('offer the title that it has; accepting it changes nothing', async () => {
    const { actions, changes } = made();
    const asked = answer('Baseline');
    await actions.rename('old');
    expect(asked.mock.calls[0][0].text).toBe('Baseline');
    expect(changes()).toEqual([]);
    answer('');
    await actions.rename('old');
    expect(changes().map(([, options]) => options?.body)).toEqual([
      { title: '' }
    ]);
  });

  it('edit its config as one of its own kind and cluster', async () => {
    const { actions, edit } = made();
    await actions.resubmit('old');
    expect(edit).toHaveBeenCalledWith(OLD, 'engine: {}\n');
  });

  it('open the job page of its cluster', async () => {
    const { commands, opened } = made();
    await commands.execute(CommandIDs.openRunJob, { runId: 'old' });
    expect(opened).toEqual([{ cluster: 'gpus', submissionId: 'raysubmit_1' }]);
  });

  it('are possible where its state allows them, once that is known', async () => {
    const { commands, runs } = made();
    const can = (id: string) => commands.isEnabled(id, { runId: 'old' });
    const all = () =>
      [
        CommandIDs.stopRun,
        CommandIDs.moveRun,
        CommandIDs.retryRun,
        CommandIDs.deleteRun,
        CommandIDs.openRunJob
      ].map(can);
    expect(all()).toEqual([false, false, false, false, false]);
    expect(can(CommandIDs.renameRun)).toBe(true);
    await runs.read('old');
    expect(all()).toEqual([false, false, false, true, true]);
  });

  it('move it in the queue as was chosen', async () => {
    const { actions, sent } = made();
    const choose = (item: number, accept = true) =>
      vi
        .spyOn(InputDialog, 'getItem')
        .mockImplementation(
          async ({ items }) =>
            ({ value: items[item], button: { accept } }) as Awaited<
              ReturnType<typeof InputDialog.getItem>
            >
        );
    for (const [item, accept] of [
      [0, true],
      [3, true],
      [1, false]
    ] as const) {
      choose(item, accept);
      await actions.move('old');
    }
    expect(sent.map(([path, options]) => [path, options?.body])).toEqual([
      ['runs/old/queue', { before: '' }],
      ['runs/old/queue', { priority: 'low' }]
    ]);
  });
});
