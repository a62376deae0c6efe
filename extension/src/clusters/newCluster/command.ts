import { JupyterFrontEnd } from '@jupyterlab/application';
import {
  ICommandPalette,
  InputDialog,
  MainAreaWidget
} from '@jupyterlab/apputils';
import { IEditorServices } from '@jupyterlab/codeeditor';
import { PathExt } from '@jupyterlab/coreutils';
import { ILauncher } from '@jupyterlab/launcher';
import { Contents, ServerConnection } from '@jupyterlab/services';

import { argsOf, CATEGORY, CommandIDs } from '../../commands';
import { clustersIcon } from '../../icons';
import { IClusterModel, ILLMOps, IOperations } from '../../tokens';
import { trans } from '../../trans';
import { confirm, showError } from '../../ui/dialogs';
import { ClusterActions } from '../actions';
import {
  checkTemplate,
  clusterSchema,
  listTemplates,
  renderTemplate,
  startCluster
} from '../requests';
import { NewClusterForm } from './form';
import { NewClusterModel } from './model';
import { ISchema } from './schema';

interface IOptions {
  app: JupyterFrontEnd;
  llmops: ILLMOps;
  clusters: IClusterModel;
  actions: ClusterActions;
  operations: IOperations;
  editors: IEditorServices;
  palette: ICommandPalette | null;
  launcher: ILauncher | null;
}

/**
 * `llmops:new-cluster {template?}` opens the form; one at a time.
 */
export function addNewClusterCommand(options: IOptions): void {
  const { app, palette, launcher } = options;
  let opened: MainAreaWidget<NewClusterForm> | null = null;
  app.commands.addCommand(CommandIDs.newCluster, {
    label: args =>
      args.isLauncher
        ? trans.__('New Ray Cluster')
        : trans.__('New Ray Cluster…'),
    caption: trans.__('Start a cluster from a template'),
    icon: clustersIcon,
    describedBy: argsOf({
      template: 'Name or path of the template to begin with.'
    }),
    execute: args => {
      const template = typeof args.template === 'string' ? args.template : '';
      if (!opened || opened.isDisposed) {
        opened = openForm(options, template);
      }
      app.shell.activateById(opened.id);
    }
  });
  palette?.addItem({ command: CommandIDs.newCluster, category: CATEGORY });
  launcher?.add({
    command: CommandIDs.newCluster,
    args: { isLauncher: true },
    category: CATEGORY,
    rank: 1
  });
}

function openForm(
  options: IOptions,
  template: string
): MainAreaWidget<NewClusterForm> {
  const { app, llmops, clusters, editors } = options;
  const model = new NewClusterModel({
    templates: () => listTemplates(llmops),
    schema: provider => clusterSchema(llmops, provider) as Promise<ISchema>,
    check: text => checkTemplate(llmops, text),
    render: data => renderTemplate(llmops, data)
  });
  const content = new NewClusterForm({
    model,
    editors,
    existing: () =>
      clusters.clusters.find(row => row.name === nameIn(model)) ?? null,
    start: () => void start(options, model, widget),
    save: () => void save(options, model)
  });
  const widget = new MainAreaWidget({ content });
  widget.id = 'llmops-new-cluster';
  widget.toolbar.hide();
  widget.title.label = trans.__('New Ray Cluster');
  widget.title.icon = clustersIcon;
  const redraw = () => content.update();
  clusters.changed.connect(redraw);
  widget.disposed.connect(() => {
    clusters.changed.disconnect(redraw);
    // A field that has just been typed goes into the draft first.
    void model.settle().finally(() => model.dispose());
  });
  app.shell.add(widget, 'main');
  void model.load(template);
  return widget;
}

/** As the fields have it; a name that only follows from the file is not known here. */
function nameIn(model: NewClusterModel): string {
  return String(model.values?.name ?? model.check?.name ?? '');
}

async function start(
  { app, llmops, actions, operations }: IOptions,
  model: NewClusterModel,
  widget: MainAreaWidget
): Promise<void> {
  try {
    const { template } = model;
    const operation = await startCluster(llmops, model.start);
    actions.follow(operation);
    // After a failure the form still has what was typed.
    void operations.finished(operation).then(
      () => template && model.started(template),
      () => undefined
    );
    widget.close();
    void app.commands.execute(CommandIDs.showClusters);
  } catch (error) {
    await showError(trans.__('The cluster was not started'), error);
  }
}

async function save({ app }: IOptions, model: NewClusterModel): Promise<void> {
  await model.settle();
  const { text, template, check } = model;
  try {
    const path = await saveTemplate(app.serviceManager.contents, {
      text,
      name: check?.name ?? '',
      path: template?.path ?? null
    });
    if (path !== null) {
      await model.load(path);
    }
  } catch (error) {
    await showError(trans.__('The template was not saved'), error);
  }
}

const FOLDER = 'cluster_templates';

/**
 * Asks for a path and writes the template there. Null when the user leaves it.
 */
async function saveTemplate(
  contents: Contents.IManager,
  options: { text: string; name: string; path: string | null }
): Promise<string | null> {
  const result = await InputDialog.getText({
    title: trans.__('Save as template file'),
    label: trans.__('Path below the Jupyter root folder'),
    text: options.path ?? `${FOLDER}/${options.name || 'cluster'}.yaml`,
    okLabel: trans.__('Save')
  });
  const path = result.value?.trim().replace(/^\/+/, '');
  if (!result.button.accept || !path) {
    return null;
  }
  if ((await exists(contents, path)) && !(await replaces(path))) {
    return null;
  }
  await makeFolder(contents, PathExt.dirname(path));
  await contents.save(path, {
    type: 'file',
    format: 'text',
    content: options.text
  });
  return path;
}

function replaces(path: string): Promise<boolean> {
  return confirm({
    title: trans.__('Replace %1?', path),
    lines: [trans.__('A file with this name already exists.')],
    action: trans.__('Replace')
  });
}

async function exists(
  contents: Contents.IManager,
  path: string
): Promise<boolean> {
  try {
    await contents.get(path, { content: false });
    return true;
  } catch (error) {
    if (
      error instanceof ServerConnection.ResponseError &&
      error.response.status === 404
    ) {
      return false;
    }
    throw error;
  }
}

async function makeFolder(
  contents: Contents.IManager,
  path: string
): Promise<void> {
  if (path === '' || path === '.' || (await exists(contents, path))) {
    return;
  }
  await makeFolder(contents, PathExt.dirname(path));
  await contents.save(path, { type: 'directory' });
}
