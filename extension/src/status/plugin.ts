import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

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
  optional: [IStatusBar, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    llmops: ILLMOps,
    clusters: IClusterModel,
    runs: IRunsModel,
    bar: IStatusBar | null,
    translator: ITranslator | null
  ) => {
    if (!bar) {
      return;
    }
    const trans = (translator ?? nullTranslator).load('llmops');
    const show = () => void app.commands.execute(CommandIDs.showClusters);
    const item = new StatusItem(clusters, runs, llmops.live, trans, show);
    bar.registerStatusItem('@llmops/lab:status', {
      item,
      align: 'left',
      rank: 200
    });
  }
};
