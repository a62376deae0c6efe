import { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { connectionPlugin, operationsPlugin } from './connection';
import { runsModelPlugin, runsPanelPlugin } from './runs/plugin';

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  connectionPlugin,
  operationsPlugin,
  runsModelPlugin,
  runsPanelPlugin
];

export default plugins;
