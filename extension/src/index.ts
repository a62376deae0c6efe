import { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { attachPlugin } from './clusters/inject';
import {
  clusterCommandsPlugin,
  clusterModelPlugin,
  clusterPanelPlugin
} from './clusters/plugin';
import { cellPlugin, configsPlugin, submissionsPlugin } from './configs/plugin';
import { connectionPlugin, operationsPlugin } from './connection';
import { dashboardPlugin, layoutPlugin } from './dashboard/plugin';
import { helpPlugin } from './help/plugin';
import { preferencesPlugin } from './preferences';
import { runPlugin } from './run/plugin';
import { runsModelPlugin, runsPanelPlugin } from './runs/plugin';
import { runTablePlugin } from './runTable/plugin';
import { notifyPlugin, statusPlugin } from './status/plugin';

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  connectionPlugin,
  operationsPlugin,
  preferencesPlugin,
  clusterModelPlugin,
  clusterPanelPlugin,
  clusterCommandsPlugin,
  attachPlugin,
  dashboardPlugin,
  layoutPlugin,
  runsModelPlugin,
  runsPanelPlugin,
  runTablePlugin,
  runPlugin,
  submissionsPlugin,
  configsPlugin,
  cellPlugin,
  notifyPlugin,
  statusPlugin,
  helpPlugin
];

export default plugins;
