import { InputDialog, Notification } from '@jupyterlab/apputils';

import { asTrouble } from '../api';
import { IClusterModel, ILLMOps, IOperations } from '../tokens';
import { trans } from '../trans';
import { confirm, showError } from '../ui/dialogs';
import { OperationInfo, ScaleBody } from '../wire';
import { whyNot } from './model';
import {
  ClusterAction,
  keepCluster,
  previewAction,
  startAction
} from './requests';
import { askNumbers } from './scaleDialog';

/**
 * What the commands do: ask for confirmation before a loss, start, report failures.
 */
export class ClusterActions {
  constructor(
    private llmops: ILLMOps,
    private model: IClusterModel,
    private operations: IOperations
  ) {}

  async run(action: ClusterAction, cluster: string): Promise<void> {
    try {
      const numbers = await this.agreed(action, cluster);
      if (numbers !== null) {
        const { llmops } = this;
        this.follow(await startAction(llmops, cluster, action, numbers));
      }
    } catch (error) {
      const title = trans.__('Cannot %1 cluster %2', action, cluster);
      await showError(title, error);
    }
  }

  /** Answers at once: it only writes down a wish. */
  async keep(cluster: string, hours: number): Promise<void> {
    try {
      await keepCluster(this.llmops, cluster, hours * 3600);
      Notification.success(
        hours > 0
          ? trans.__('Cluster %1 is kept for %2 h', cluster, hours)
          : trans.__('Cluster %1 is no longer kept', cluster),
        { autoClose: 4000 }
      );
    } catch (error) {
      await showError(trans.__('Cannot keep cluster %1', cluster), error);
    }
  }

  /** Runs in the background; a failure is shown as a notification. */
  follow(operation: OperationInfo): void {
    const { kind, what } = operation;
    this.operations.finished(operation).then(
      ({ result }) => {
        if (result.message) {
          // Such as: attached to one that runs, which is not as the template says.
          Notification.warning(`${kind} ${what}: ${String(result.message)}`);
        }
      },
      error => {
        const message = asTrouble(error).message.split('\n')[0];
        Notification.error(`${kind} ${what}: ${message}`, { autoClose: false });
      }
    );
  }

  /** The cluster that a command is about; asks when there are several that fit. */
  async choose(action: ClusterAction | ''): Promise<string | null> {
    const names = this.model.clusters
      .filter(row => action === '' || whyNot(row, action) === '')
      .map(row => row.name);
    if (names.length < 2) {
      return names[0] ?? null;
    }
    const result = await InputDialog.getItem({
      title: trans.__('Which cluster?'),
      items: names
    });
    return result.button.accept ? result.value : null;
  }

  /** Null: the user does not want it after all. */
  private async agreed(
    action: ClusterAction,
    cluster: string
  ): Promise<ScaleBody | null> {
    const info = this.model.find(cluster)?.info;
    if (action === 'resume' && !info?.queue) {
      return {}; // Only a queue may replace a head that runs.
    }
    const preview = await previewAction(this.llmops, cluster, action);
    if (action === 'scale') {
      return info ? askNumbers(info, preview) : null;
    }
    if (!preview.needs_confirmation) {
      return {};
    }
    const lines = [preview.summary];
    if (preview.keeps.length > 0) {
      lines.push(trans.__('Kept: %1.', preview.keeps.join('; ')));
    }
    if (preview.stops.length > 0) {
      lines.push(trans.__('This stops:'));
    }
    const yes = await confirm({
      ...this.question(action, cluster),
      lines,
      items: preview.stops
    });
    return yes ? {} : null;
  }

  private question(
    action: ClusterAction,
    cluster: string
  ): { title: string; action: string } {
    switch (action) {
      case 'delete':
        return {
          title: trans.__('Delete cluster %1?', cluster),
          action: trans.__('Delete')
        };
      case 'resume':
        return {
          title: trans.__('Resume cluster %1?', cluster),
          action: trans.__('Resume')
        };
      default:
        return {
          title: trans.__('Suspend cluster %1?', cluster),
          action: trans.__('Suspend')
        };
    }
  }
}
