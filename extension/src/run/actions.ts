import {
  Clipboard,
  Dialog,
  InputDialog,
  Notification,
  showDialog
} from '@jupyterlab/apputils';
import { CommandRegistry } from '@lumino/commands';

import { CommandIDs } from '../commands';
import { notified } from '../operations';
import { nameOf } from '../runs/model';
import { ILLMOps, IOperations, IPreferences, IRunsModel } from '../tokens';
import { trans } from '../trans';
import { confirm, reported } from '../ui/dialogs';
import { bytes } from '../ui/format';
import {
  OperationInfo,
  QueueBody,
  ResubmitBody,
  RunPreview,
  RunRow
} from '../wire';
import * as requests from './requests';
import { IEdited } from './resubmit';

export interface IActionServices {
  llmops: ILLMOps;
  operations: IOperations;
  runs: IRunsModel;
  preferences: IPreferences;
  commands: CommandRegistry;

  /** Show a run's config for editing; null when it was cancelled. */
  edit: (row: RunRow, yaml: string) => Promise<IEdited | null>;
}

/**
 * What the commands of a run do: ask for confirmation before a loss, start, report failures.
 */
export class RunActions {
  constructor(private services: IActionServices) {}

  /** Asks for confirmation. */
  async stop(runId: string): Promise<void> {
    const yes = await confirm({
      title: trans.__('Stop run %1?', this.named(runId)),
      lines: [
        trans.__(
          'It saves its progress first, so that Retry can continue from there.'
        )
      ],
      action: trans.__('Stop'),
      danger: true
    });
    if (yes) {
      await reported(trans.__('Cannot stop the run'), () =>
        this.stopNow(runId)
      );
    }
  }

  /** Resolves when the cluster was asked; rejects when it refused. */
  private async stopNow(runId: string): Promise<void> {
    const { llmops, operations } = this.services;
    await operations.finished(await requests.act(llmops, runId, 'stop'));
  }

  move(runId: string): Promise<void> {
    const { llmops, operations } = this.services;
    return reported(trans.__('Cannot move the run'), async () => {
      const moves = new Map<string, QueueBody>([
        [trans.__('Before all that wait'), { before: '' }],
        [trans.__('High priority'), { priority: 'high' }],
        [trans.__('Normal priority'), { priority: 'normal' }],
        [
          trans.__('Low priority: gives way to others from a checkpoint'),
          { priority: 'low' }
        ]
      ]);
      const answer = await InputDialog.getItem({
        title: trans.__('Move run %1 in the queue', this.named(runId)),
        label: trans.__('All users of the cluster see who moved it'),
        items: [...moves.keys()],
        okLabel: trans.__('Move')
      });
      const body = moves.get(answer.value ?? '');
      if (answer.button.accept && body) {
        await operations.finished(await requests.move(llmops, runId, body));
      }
    });
  }

  retry(runId: string): Promise<void> {
    const { llmops } = this.services;
    return reported(trans.__('Cannot retry the run'), async () =>
      this.follow(
        await requests.act(llmops, runId, 'retry'),
        trans.__('Retrying %1', this.named(runId)),
        trans.__('%1 continues as a new attempt', this.named(runId))
      )
    );
  }

  resubmit(runId: string): Promise<void> {
    const { llmops, edit } = this.services;
    return reported(trans.__('Cannot re-submit the run'), async () => {
      const { row, config_yaml } = await requests.detail(llmops, runId);
      const edited = await edit(row, config_yaml);
      if (edited !== null) {
        await this.submitAgain(runId, edited);
      }
    });
  }

  /** Submits at once: the verdict of a run has said what changes. */
  tryChange(runId: string, overrides: string[]): Promise<void> {
    return reported(trans.__('Cannot re-submit the run'), () =>
      this.submitAgain(runId, { overrides })
    );
  }

  private async submitAgain(runId: string, body: ResubmitBody): Promise<void> {
    const { llmops, preferences, commands } = this.services;
    const begun = await requests.resubmit(llmops, runId, body);
    const ended = await this.follow(
      begun,
      trans.__('Re-submitting %1', this.named(runId)),
      trans.__('Submitted')
    );
    const newId = ended.result.run_id;
    if (typeof newId === 'string' && preferences.openRunOnSubmit) {
      await commands.execute(CommandIDs.openRun, { runId: newId });
    }
  }

  star(runId: string): Promise<void> {
    const { llmops, runs } = this.services;
    return reported(trans.__('Cannot star the run'), async () => {
      const { starred } = await runs.read(runId);
      await requests.annotate(llmops, runId, { starred: !starred });
      await runs.read(runId);
    });
  }

  rename(runId: string): Promise<void> {
    const { llmops, runs } = this.services;
    return reported(trans.__('Cannot rename the run'), async () => {
      // Without the title that it has, accepting would erase it.
      const before = (await runs.read(runId)).title;
      const answer = await InputDialog.getText({
        title: trans.__('Title of run %1', runId),
        label: trans.__('Shown instead of its id; leave empty to remove it'),
        text: before,
        okLabel: trans.__('Rename')
      });
      const title = answer.value ?? '';
      if (answer.button.accept && title !== before) {
        await requests.annotate(llmops, runId, { title });
        await runs.read(runId);
      }
    });
  }

  /** Ray's page of the job of the newest attempt. */
  openJob(runId: string): Promise<void> {
    const { commands, runs } = this.services;
    return reported(trans.__('Cannot open the Ray job page'), async () => {
      const { cluster, submission_id } = await runs.read(runId);
      await commands.execute(CommandIDs.openDashboard, {
        cluster,
        submissionId: submission_id
      });
    });
  }

  remove(runId: string): Promise<void> {
    const { llmops } = this.services;
    return reported(trans.__('Cannot delete the run'), async () => {
      const preview = await requests.preview(llmops, runId);
      const yes = await confirm({
        title: trans.__('Delete run %1?', this.named(runId)),
        lines: this.linesOf(preview),
        items: [...preview.outputs, ...preview.checkpoints],
        action: trans.__('Delete')
      });
      if (yes) {
        await this.follow(
          await requests.remove(llmops, runId),
          trans.__('Deleting %1', this.named(runId)),
          trans.__('%1 is deleted', this.named(runId))
        );
      }
    });
  }

  copyId(runId: string): void {
    Clipboard.copyToSystem(runId);
    Notification.info(trans.__('Copied %1', runId), {
      autoClose: 2000
    });
  }

  openFolder(runId: string): Promise<void> {
    const { llmops } = this.services;
    return reported(trans.__('Cannot open the folder'), async () => {
      const { folder, contents_path } = await requests.detail(llmops, runId);
      await this.showPath(folder, contents_path);
    });
  }

  /** In the file browser, or as text where that cannot reach it. */
  async showPath(path: string, contentsPath: string | null): Promise<void> {
    const { commands } = this.services;
    if (contentsPath !== null) {
      await commands.execute('filebrowser:go-to-path', {
        path: contentsPath,
        dontShowBrowser: false
      });
      return;
    }
    const result = await showDialog({
      title: trans.__('Outside of the file browser'),
      body: trans.__(
        '%1 is not below the folder that JupyterLab shows. Open it in a terminal.',
        path
      ),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Close') }),
        Dialog.okButton({ label: trans.__('Copy Path') })
      ]
    });
    if (result.button.accept) {
      Clipboard.copyToSystem(path);
    }
  }

  private linesOf(preview: RunPreview): string[] {
    const { size_bytes, num_files, folder, kept, children } = preview;
    const size = trans.__('%1 in %2 files', bytes(size_bytes), num_files);
    const lines = [trans.__('This deletes: %1, %2.', folder, size)];
    if (kept.length > 0) {
      lines.push(trans.__('This keeps: %1.', kept.join(', ')));
    }
    if (children.length > 0) {
      const names = children.join(', ');
      lines.push(trans.__('Runs re-submitted from it are kept: %1.', names));
    }
    if (preview.outputs.length + preview.checkpoints.length > 0) {
      lines.push(trans.__('Its outputs and checkpoints are also deleted:'));
    }
    return lines;
  }

  private named(runId: string): string {
    const row = this.services.runs.find(runId);
    return row ? nameOf(row) : runId;
  }

  private follow(
    operation: OperationInfo,
    pending: string,
    done: string
  ): Promise<OperationInfo> {
    const end = this.services.operations.finished(operation);
    return notified(end, pending, done);
  }
}
