import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { IEditorTracker } from '@jupyterlab/fileeditor';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker } from '@jupyterlab/notebook';

import { CATEGORY, CommandIDs } from '../commands';
import { IClusterModel, ILLMOps, IOperations, IPreferences } from '../tokens';
import { trans } from '../trans';
import { showError } from '../ui/dialogs';
import { AssistedEditor } from './assisted';
import { addCellCommand } from './cell';
import { ClusterChoice } from './choice';
import {
  addConfigCommands,
  addEditorCommands,
  IEditors
} from './configCommands';
import { Kinds } from './kinds';
import { addScriptCommand } from './scriptCommand';
import { askScript, askSubmission } from './submit';
import { Submitter } from './submitter';
import { ISubmissions } from './tokens';
import { addViewCommands } from './viewCommands';

/**
 * Submits configs to clusters, for every command that does so.
 */
export const submissionsPlugin: JupyterFrontEndPlugin<ISubmissions> = {
  id: '@llmops/lab:submissions',
  description: 'Submits training configs to clusters.',
  provides: ISubmissions,
  requires: [ILLMOps, IOperations, IClusterModel, IPreferences],
  activate: (
    app: JupyterFrontEnd,
    llmops: ILLMOps,
    operations: IOperations,
    clusters: IClusterModel,
    preferences: IPreferences
  ): ISubmissions => {
    const { commands } = app;
    const choice = new ClusterChoice(clusters, preferences);
    const services = { llmops, operations, preferences, commands };
    const submitter = new Submitter({ ...services, choice });
    const places = { choice, onNew: submitter.newCluster };
    return {
      kinds: new Kinds(llmops),
      choice,
      submitter,
      ask: question => askSubmission({ ...question, ...places }),
      askScript: question => askScript({ ...question, ...places })
    };
  }
};

/**
 * Completion, hover, squiggles and buttons in the editors of config files, and their commands.
 */
export const configsPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:configs',
  description: 'Helps to write and submit training configs.',
  autoStart: true,
  requires: [ILLMOps, ISubmissions, IPreferences, IEditorTracker],
  optional: [IDefaultFileBrowser, ICommandPalette, ILauncher, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    llmops: ILLMOps,
    submissions: ISubmissions,
    preferences: IPreferences,
    tracker: IEditorTracker,
    browser: IDefaultFileBrowser | null,
    palette: ICommandPalette | null,
    launcher: ILauncher | null,
    restorer: ILayoutRestorer | null
  ) => {
    const submit = (editor: AssistedEditor) =>
      void submitEdited(submissions, editor);
    const shared = { app, llmops, submissions, preferences, tracker };
    const editors = assistEditors({ ...shared, submit });
    const services = { app, llmops, submissions, browser, tracker, editors };
    addConfigCommands({ ...services, submit });
    addViewCommands({ ...services, restorer });
    addEditorCommands({ app, tracker, editors });
    addScriptCommand({ app, llmops, submissions, browser, tracker });
    [
      CommandIDs.checkConfig,
      CommandIDs.showData,
      CommandIDs.showPlan,
      CommandIDs.submitConfig,
      CommandIDs.submitScript,
      CommandIDs.startTemplate,
      CommandIDs.newConfig,
      CommandIDs.showConfigProblems
    ].forEach(command => palette?.addItem({ command, category: CATEGORY }));
    void submissions.kinds.ready.then(() =>
      submissions.kinds.others.forEach(({ name, is_run: isRun }) => {
        const item = {
          command: CommandIDs.newConfig,
          category: CATEGORY,
          args: { kind: name }
        };
        palette?.addItem(item);
        // Clusters have a card of their own.
        if (isRun) {
          launcher?.add({ ...item, rank: 3 });
        }
      })
    );
    launcher?.add({
      command: CommandIDs.newConfig,
      category: CATEGORY,
      rank: 2
    });
  }
};

/** Each editor of a config, those that are open and those to come. */
function assistEditors(services: {
  app: JupyterFrontEnd;
  llmops: ILLMOps;
  submissions: ISubmissions;
  preferences: IPreferences;
  tracker: IEditorTracker;
  submit: (editor: AssistedEditor) => void;
}): IEditors {
  const { app, submissions, tracker, submit, ...rest } = services;
  const { kinds, choice, submitter } = submissions;
  const { contents } = app.serviceManager;
  const editors: IEditors = new Map();
  const assist = (widget: AssistedEditor['widget']) => {
    const editor = new AssistedEditor(widget, {
      ...rest,
      kinds,
      choice,
      localPath: path => contents.localPath(path),
      onSubmit: submit,
      onView: (id, path) => void app.commands.execute(id, { path }),
      onStart: path => void submitter.start(path),
      onNewCluster: submitter.newCluster
    });
    editors.set(widget.id, editor);
    widget.disposed.connect(() => editors.delete(widget.id));
  };
  void kinds.ready.then(() => {
    tracker.forEach(assist);
    tracker.widgetAdded.connect((_, widget) => assist(widget));
  });
  return editors;
}

/** What is submitted is the file, so it is saved first. */
async function submitEdited(
  submissions: ISubmissions,
  editor: AssistedEditor
): Promise<void> {
  const { submitter, choice } = submissions;
  try {
    await editor.save();
  } catch (error) {
    await showError(trans.__('The file was not saved'), error);
    return;
  }
  await submitter.submit({ path: editor.path }, choice.name);
}

/**
 * Submits a notebook's cell that is a training config.
 */
export const cellPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:cell',
  description: 'Submits notebook cells that are training configs.',
  autoStart: true,
  requires: [ILLMOps, ISubmissions, INotebookTracker],
  optional: [ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    llmops: ILLMOps,
    submissions: ISubmissions,
    notebooks: INotebookTracker,
    palette: ICommandPalette | null
  ) => {
    addCellCommand({ app, llmops, submissions, notebooks });
    palette?.addItem({ command: CommandIDs.submitCell, category: CATEGORY });
  }
};
