import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';

import { CommandIDs } from '../commands';
import { detail } from '../run/requests';
import { ILLMOps, IRunsModel } from '../tokens';
import { trans } from '../trans';
import { addSidePanel } from '../ui/widgets';
import { RunsModel } from './model';
import { RunsPanel } from './panel';

/**
 * Provides the runs. Knows the server, knows no widget.
 */
export const runsModelPlugin: JupyterFrontEndPlugin<IRunsModel> = {
  id: '@llmops/lab:runs-model',
  description: 'Follows the runs of the store.',
  provides: IRunsModel,
  requires: [ILLMOps],
  activate: (_: JupyterFrontEnd, llmops: ILLMOps) =>
    new RunsModel(llmops.live, async runId => (await detail(llmops, runId)).row)
};

/**
 * Shows the runs. Knows widgets, knows no server.
 */
export const runsPanelPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:runs-panel',
  description: 'Lists training runs in the left side bar.',
  autoStart: true,
  requires: [IRunsModel],
  optional: [ICommandPalette, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    model: IRunsModel,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null
  ) => {
    addSidePanel(new RunsPanel(model, app.commands), {
      app,
      palette,
      restorer,
      rank: 610,
      command: CommandIDs.showRuns,
      label: trans.__('Show Runs'),
      caption: trans.__('Open the sidebar that lists training runs')
    });
  }
};
