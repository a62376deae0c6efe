import { InputDialog } from '@jupyterlab/apputils';
import { CommandRegistry } from '@lumino/commands';

import { CommandIDs } from '../commands';
import { ILLMOps, IOperations } from '../tokens';
import { trans } from '../trans';
import { confirm, reported } from '../ui/dialogs';
import { RunLosses, RunTagsBody } from '../wire';
import { RunTableModel } from './model';
import * as requests from './requests';

export interface IActionServices {
  llmops: ILLMOps;
  operations: IOperations;
  commands: CommandRegistry;
}

/**
 * What can be done to many runs: asks before a loss, and reports what failed.
 */
export class TableActions {
  constructor(
    private services: IActionServices,
    private model: RunTableModel
  ) {}

  compare(runIds: string[]): void {
    void this.services.commands.execute(CommandIDs.compareRuns, { runIds });
  }

  async tag(runIds: string[]): Promise<void> {
    const answer = await InputDialog.getText({
      title: trans.__('Tags of %1 runs', runIds.length),
      label: trans.__(
        'Tags to add, with commas between them; a minus removes one: best, -draft'
      ),
      okLabel: trans.__('Save')
    });
    const { add, remove } = tagsOf(answer.value ?? '');
    if (answer.button.accept && add.length + remove.length > 0) {
      await this.mark({ run_ids: runIds, add, remove, colour: null });
    }
  }

  colour(runIds: string[], name: string): Promise<void> {
    const colour = (name === 'none' ? '' : name) as RunTagsBody['colour'];
    return this.mark({ run_ids: runIds, add: [], remove: [], colour });
  }

  async stop(runIds: string[]): Promise<void> {
    const { llmops } = this.services;
    await reported(trans.__('Cannot stop the runs'), async () => {
      const { not_ended } = await requests.losses(llmops, runIds);
      if (not_ended.length === 0) {
        await confirm({
          title: trans.__('Nothing to stop'),
          lines: [trans.__('All %1 runs have already ended.', runIds.length)],
          action: trans.__('Close'),
          danger: false
        });
        return;
      }
      const yes = await confirm({
        title: trans.__('Stop %1 runs?', not_ended.length),
        lines: [
          trans.__('Each saves its progress first, so that it can be retried.')
        ],
        items: not_ended,
        action: trans.__('Stop')
      });
      if (yes) {
        await this.act('stop', not_ended);
      }
    });
  }

  async remove(runIds: string[]): Promise<void> {
    const { llmops } = this.services;
    await reported(trans.__('Cannot delete the runs'), async () => {
      const losses = await requests.losses(llmops, runIds);
      const left = new Set([...losses.not_ended, ...losses.missing]);
      const deleted = runIds.filter(runId => !left.has(runId));
      const yes = await confirm({
        title: trans.__('Delete %1 runs?', deleted.length),
        lines: lossLines(losses),
        items: losses.starred.map(runId => trans.__('★ %1', runId)),
        action: trans.__('Delete')
      });
      if (yes && deleted.length > 0) {
        await this.act('delete', deleted);
        this.model.clearSelection();
      }
    });
  }

  /** A file of all runs that match, with the columns that are shown. */
  async download(format: 'csv' | 'parquet'): Promise<void> {
    const { llmops } = this.services;
    const { where, sort } = this.model.state;
    const columns = (this.model.answer?.columns ?? []).map(({ name }) => name);
    await reported(trans.__('Cannot write the file'), async () => {
      const query = { where, sort, columns };
      const data = await requests.file(llmops, format, query);
      const url = URL.createObjectURL(new Blob([data]));
      const link = document.createElement('a');
      link.href = url;
      link.download = `runs.${format}`;
      link.click();
      // The browser reads it after the click.
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
    });
  }

  private async act(
    action: 'delete' | 'stop',
    runIds: string[]
  ): Promise<void> {
    const { llmops, operations } = this.services;
    const begun = await requests.act(llmops, action, runIds);
    try {
      await operations.finished(begun);
    } finally {
      await this.model.refresh();
    }
  }

  private mark(body: RunTagsBody): Promise<void> {
    const { llmops } = this.services;
    return reported(trans.__('Cannot mark the runs'), async () => {
      await requests.tag(llmops, body);
      await this.model.refresh();
    });
  }
}

/** `best, -draft` as tags to add and to remove. */
export function tagsOf(text: string): { add: string[]; remove: string[] } {
  const parts = text
    .split(',')
    .map(part => part.trim())
    .filter(Boolean);
  return {
    add: parts.filter(part => !part.startsWith('-')),
    remove: parts
      .filter(part => part.startsWith('-'))
      .map(part => part.slice(1).trim())
      .filter(Boolean)
  };
}

/** What will be lost, in sentences. */
function lossLines(losses: RunLosses): string[] {
  const { num_runs, not_ended, num_checkpoints, num_with_output } = losses;
  const lines = [
    trans.__(
      'This deletes their journals and logs, %1 checkpoints, and the outputs of %2 runs: %3 in all.',
      num_checkpoints,
      num_with_output,
      losses.size
    )
  ];
  if (not_ended.length > 0) {
    lines.push(
      trans.__(
        '%1 of the %2 runs have not ended and are kept: stop them first.',
        not_ended.length,
        num_runs
      )
    );
  }
  if (losses.starred.length > 0) {
    lines.push(trans.__('Among them are starred runs:'));
  }
  return lines;
}
