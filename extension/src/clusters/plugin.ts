import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IEditorServices } from '@jupyterlab/codeeditor';
import { ILauncher } from '@jupyterlab/launcher';
import { IConsoleTracker } from '@jupyterlab/console';
import { INotebookTracker } from '@jupyterlab/notebook';

import { CommandIDs } from '../commands';
import { IClusterModel, ILLMOps, IOperations } from '../tokens';
import { trans } from '../trans';
import { addSidePanel } from '../ui/widgets';
import { ClusterActions } from './actions';
import { addActionCommands } from './commands';
import { ClusterModel } from './model';
import { addNewClusterCommand } from './newCluster/command';
import { ClusterPanel } from './panel';

/**
 * Provides the clusters. Knows the server, knows no widget.
 */
export const clusterModelPlugin: JupyterFrontEndPlugin<IClusterModel> = {
  id: '@llmops/lab:cluster-model',
  description: 'Follows the Ray clusters of all providers.',
  provides: IClusterModel,
  requires: [ILLMOps],
  activate: (_: JupyterFrontEnd, llmops: ILLMOps) =>
    new ClusterModel(llmops.live)
};

/**
 * Shows the clusters. Knows widgets, knows no server.
 */
export const clusterPanelPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:cluster-panel',
  description: 'Lists Ray clusters in the left side bar.',
  autoStart: true,
  requires: [IClusterModel, IOperations],
  optional: [ICommandPalette, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    model: IClusterModel,
    operations: IOperations,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null
  ) => {
    const { commands } = app;
    addSidePanel(new ClusterPanel({ model, operations, commands }), {
      app,
      palette,
      restorer,
      rank: 600,
      command: CommandIDs.showClusters,
      label: trans.__('Show Ray Clusters'),
      caption: trans.__('Open the side bar that lists Ray clusters')
    });
  }
};

/**
 * The commands that change clusters, and the form that makes a new one.
 */
export const clusterCommandsPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:cluster-commands',
  description: 'Starts, scales, suspends, resumes and deletes Ray clusters.',
  autoStart: true,
  requires: [ILLMOps, IClusterModel, IOperations, IEditorServices],
  optional: [ICommandPalette, INotebookTracker, IConsoleTracker, ILauncher],
  activate: (
    app: JupyterFrontEnd,
    llmops: ILLMOps,
    model: IClusterModel,
    operations: IOperations,
    editors: IEditorServices,
    palette: ICommandPalette | null,
    notebooks: INotebookTracker | null,
    consoles: IConsoleTracker | null,
    launcher: ILauncher | null
  ) => {
    const actions = new ClusterActions(llmops, model, operations);
    const shared = { app, palette };
    addActionCommands({ ...shared, model, actions, notebooks, consoles });
    addNewClusterCommand({
      ...shared,
      llmops,
      clusters: model,
      actions,
      operations,
      editors,
      launcher
    });
  }
};
