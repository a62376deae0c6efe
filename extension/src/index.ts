import { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { connectionPlugin, operationsPlugin } from './connection';

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  connectionPlugin,
  operationsPlugin
];

export default plugins;
