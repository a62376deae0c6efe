import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';

import { CommandIDs } from '../commands';
import { IClusterModel, ILLMOps, IRunsModel } from '../tokens';
import { StatusItem } from './bar';

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
