import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { IStatusBar } from '@jupyterlab/statusbar';

import { CommandIDs } from '../commands';
import { IClusterModel, ILLMOps, IPreferences, IRunsModel } from '../tokens';
import { StatusItem } from './bar';
import { EndNotices } from './endNotices';

/**
 * What is up and in use, in the status bar.
 */
export const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:status',
  description: 'Cluster, GPUs in use and running jobs in the status bar.',
  autoStart: true,
  requires: [ILLMOps, IClusterModel, IRunsModel],
  optional: [IStatusBar],
  activate: (
    app: JupyterFrontEnd,
    llmops: ILLMOps,
    clusters: IClusterModel,
    runs: IRunsModel,
    bar: IStatusBar | null
  ) => {
    if (!bar) {
      return;
    }
    const show = () => void app.commands.execute(CommandIDs.showClusters);
    const item = new StatusItem(clusters, runs, llmops.live, show);
    bar.registerStatusItem('@llmops/lab:status', {
      item,
      align: 'left',
      rank: 200
    });
  }
};

/**
 * Shows a notification when runs end.
 */
export const notifyPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:notify',
  description: 'Notifies when a training run ends.',
  autoStart: true,
  requires: [IRunsModel, IPreferences],
  activate: (
    app: JupyterFrontEnd,
    runs: IRunsModel,
    preferences: IPreferences
  ) => {
    const notices = new EndNotices(
      Notification.manager,
      run =>
        void (run
          ? app.commands.execute(CommandIDs.openRun, { runId: run.run_id })
          : app.commands.execute(CommandIDs.showRuns))
    );
    runs.ended.connect((_, run) => {
      const wanted = preferences.notifyOnEnd;
      const isLeftOut =
        run.hidden ||
        wanted === 'never' ||
        (wanted === 'failed' && run.state !== 'FAILED');
      if (!isLeftOut) {
        notices.add(run);
      }
    });
  }
};
