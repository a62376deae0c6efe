import { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { cellPlugin, configsPlugin, submissionsPlugin } from './configs/plugin';
import { connectionPlugin, operationsPlugin } from './connection';
import { preferencesPlugin } from './preferences';
import { runsModelPlugin, runsPanelPlugin } from './runs/plugin';
import { notifyPlugin } from './status/notify';
import { statusPlugin } from './status/plugin';

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  connectionPlugin,
  operationsPlugin,
  preferencesPlugin,
  runsModelPlugin,
  runsPanelPlugin,
  submissionsPlugin,
  configsPlugin,
  cellPlugin,
  notifyPlugin,
  statusPlugin
];

export default plugins;
