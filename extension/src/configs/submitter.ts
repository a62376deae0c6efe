import { Notification } from '@jupyterlab/apputils';
import { CommandRegistry } from '@lumino/commands';

import { CommandIDs } from '../commands';
import { notified } from '../operations';
import { IClusterModel, ILLMOps, IOperations, IPreferences } from '../tokens';
import { until } from '../topicModel';
import { trans } from '../trans';
import { confirm, showError } from '../ui/dialogs';
import { ClusterRow, OperationInfo } from '../wire';
import { ClusterChoice } from './choice';
import * as requests from './requests';
import { ISubmission } from './requests';

/**
 * Hands configs to clusters and opens the runs that come of it.
 */
export class Submitter {
  constructor(
    private services: {
      llmops: ILLMOps;
      operations: IOperations;
      preferences: IPreferences;
      commands: CommandRegistry;
      choice: ClusterChoice;
    }
  ) {}

  /**
   * Resolves when the run was accepted, or its refusal was shown. What is just being
   * submitted is not submitted again: a double click makes one run.
   */
  async submit(
    what: ISubmission,
    cluster: string | null,
    overrides: string[] = []
  ): Promise<void> {
    const key = JSON.stringify([what, cluster, overrides]);
    if (this._underWay.has(key)) {
      return;
    }
    this._underWay.add(key);
    try {
      await this.handOver(what, cluster, overrides);
    } finally {
      this._underWay.delete(key);
    }
  }

  private async handOver(
    what: ISubmission,
    cluster: string | null,
    overrides: string[]
  ): Promise<void> {
    const { llmops, choice, preferences } = this.services;
    if (cluster === null) {
      await this.offerCluster();
      return;
    }
    const title = trans.__('Nothing was submitted');
    try {
      if (!(await this.makeReady(cluster))) {
        return;
      }
      const begun = await requests.submit(
        llmops,
        what,
        cluster,
        overrides,
        preferences.refuseTooLarge
      );
      choice.used(cluster);
      const ended = await this.follow(
        begun,
        trans.__('Submitting to %1…', cluster),
        trans.__('Submitted to %1', cluster)
      );
      this.open(ended);
    } catch (error) {
      await showError(title, error);
    }
  }

  /** Start a cluster from a template file. */
  async start(path: string): Promise<void> {
    const { llmops, commands } = this.services;
    try {
      const begun = await requests.up(llmops, { path });
      void commands.execute(CommandIDs.showClusters).catch(() => undefined);
      await this.follow(
        begun,
        trans.__('Starting cluster %1…', begun.what),
        trans.__('Cluster %1 is ready', begun.what)
      );
    } catch (error) {
      await showError(trans.__('The cluster did not start'), error);
    }
  }

  newCluster = (): void => {
    void this.services.commands.execute(CommandIDs.newCluster);
  };

  private async offerCluster(): Promise<void> {
    const wanted = await confirm({
      title: trans.__('There is no cluster yet'),
      lines: [
        trans.__(
          'A run needs a cluster, which keeps running for job after job.'
        )
      ],
      action: trans.__('New cluster…'),
      danger: false
    });
    if (wanted) {
      this.newCluster();
    }
  }

  /** True when the cluster takes runs now; asks before it starts one. */
  private async makeReady(name: string): Promise<boolean> {
    const { choice } = this.services;
    const row = choice.model.find(name);
    const state = row?.info?.state;
    // The server reports any cluster that is unknown here, with a remedy.
    if (!row || !row.info || state === 'ready') {
      return true;
    }
    if (state === 'starting' || row.doing === 'up' || row.doing === 'resume') {
      return this.awaitReady(name);
    }
    const yes = await confirm({
      title: trans.__('Cluster %1 is not running', name),
      lines: [
        row.info.message || trans.__('Its state is %1.', state ?? ''),
        trans.__('The config is submitted as soon as the cluster is ready.')
      ],
      action: trans.__('Start and submit'),
      danger: false
    });
    if (yes) {
      await this.startAgain(row);
    }
    return yes;
  }

  private async startAgain(row: ClusterRow): Promise<void> {
    const { llmops } = this.services;
    const canResume = row.info?.actions.resume === '';
    const begun = canResume
      ? await requests.resume(llmops, row.name)
      : await requests.up(llmops, { template: row.name });
    await this.follow(
      begun,
      trans.__('Starting cluster %1…', row.name),
      trans.__('Cluster %1 is ready', row.name)
    );
  }

  private async awaitReady(name: string): Promise<boolean> {
    const { choice } = this.services;
    const text = trans.__('Waiting for cluster %1…', name);
    const id = Notification.emit(text, 'in-progress', { autoClose: false });
    try {
      await readiness(choice.model, name);
    } finally {
      Notification.dismiss(id);
    }
    return true;
  }

  private follow(
    begun: OperationInfo,
    pending: string,
    done: string
  ): Promise<OperationInfo> {
    const end = this.services.operations.finished(begun);
    return notified(end, pending, done);
  }

  private open(ended: OperationInfo): void {
    const { commands, preferences } = this.services;
    const runId = ended.result.run_id;
    const canOpen = commands.hasCommand(CommandIDs.openRun);
    if (canOpen && typeof runId === 'string' && preferences.openRunOnSubmit) {
      void commands.execute(CommandIDs.openRun, { runId });
    }
  }

  private _underWay = new Set<string>();
}

/** Resolves when the cluster is ready; rejects when it is gone or dead. */
export async function readiness(
  model: IClusterModel,
  name: string
): Promise<void> {
  await until(model.changed, () => {
    const info = model.find(name)?.info;
    if (!info || info.state === 'dead' || info.state === 'stopped') {
      throw new Error(info?.message || `Cluster ${name} did not start`);
    }
    return info.state === 'ready' || undefined;
  });
}
