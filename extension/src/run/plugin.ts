import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, WidgetTracker } from '@jupyterlab/apputils';
import { IEditorServices } from '@jupyterlab/codeeditor';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { argsOf, CATEGORY, CommandIDs } from '../commands';
import { ISubmissions } from '../configs/tokens';
import { compareIcon, runsIcon } from '../icons';
import { nameOf } from '../runs/model';
import { ILLMOps, IOperations, IPreferences, IRunsModel } from '../tokens';
import { trans } from '../trans';
import { openOnce } from '../ui/widgets';
import { RunActions } from './actions';
import { chooseRuns, runIdsOf } from './choose';
import { addRunCommands, meant } from './commands';
import { CompareModel } from './compare/model';
import { compareId, CompareWidget } from './compare/view';
import { RunModels } from './model';
import { editConfig } from './resubmit';
import { IRunViewServices } from './view';
import { RunWidget, runWidgetId } from './widget';

/**
 * A run in the main area, several compared, and all that can be done to a run.
 */
export const runPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:run',
  description: 'Shows, compares and changes training runs.',
  autoStart: true,
  requires: [
    ILLMOps,
    IRunsModel,
    IOperations,
    IPreferences,
    ISubmissions,
    IEditorServices
  ],
  optional: [ICommandPalette, ILayoutRestorer, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    llmops: ILLMOps,
    runs: IRunsModel,
    operations: IOperations,
    preferences: IPreferences,
    submissions: ISubmissions,
    editors: IEditorServices,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    notebooks: INotebookTracker | null
  ) => {
    const { commands } = app;
    const editing = { llmops, submissions, editors };
    const actions = new RunActions({
      llmops,
      operations,
      runs,
      preferences,
      commands,
      edit: (row, yaml) =>
        editConfig(editing, {
          title: trans.__('Re-submit %1', nameOf(row)),
          yaml,
          kind: row.kind,
          cluster: row.cluster
        })
    });
    const services: IRunViewServices = {
      llmops,
      operations,
      models: new RunModels(llmops.live),
      runs,
      charts: preferences.charts,
      showPath: (path, contentsPath) =>
        void actions.showPath(path, contentsPath),
      tryChange: (runId, overrides) => void actions.tryChange(runId, overrides),
      openJob: ({ cluster, submission_id: submissionId }) =>
        void commands.execute(CommandIDs.openDashboard, {
          cluster,
          submissionId
        })
    };
    const shown = () => {
      const widget = app.shell.currentWidget;
      return widget instanceof RunWidget ? widget.runId : null;
    };
    const context = { app, runs, services, shown, restorer };
    addOpen(context);
    addCompare(context);
    const ids = addRunCommands({
      commands,
      runs,
      actions,
      notebooks,
      shown
    });
    app.shell.currentChanged?.connect(() => {
      ids.forEach(id => commands.notifyCommandChanged(id));
    });
    [CommandIDs.openRun, CommandIDs.compareRuns, ...ids].forEach(command =>
      palette?.addItem({ command, category: CATEGORY })
    );
  }
};

interface IContext {
  app: JupyterFrontEnd;
  runs: IRunsModel;
  services: IRunViewServices;
  shown: () => string | null;
  restorer: ILayoutRestorer | null;
}

function addOpen(context: IContext): void {
  const { app, runs, services, restorer } = context;
  const tracker = new WidgetTracker<RunWidget>({ namespace: 'llmops-run' });
  const open = (runId: string) =>
    openOnce(
      app,
      tracker,
      runWidgetId(runId),
      () => new RunWidget(runId, services, app.commands),
      { type: 'LLM Training Run' }
    );
  app.commands.addCommand(CommandIDs.openRun, {
    label: trans.__('Open Training Run…'),
    caption: trans.__('Show its curves, log, config, outputs and notes'),
    icon: runsIcon,
    describedBy: argsOf({ runId: 'Without it a dialog asks for one.' }),
    isEnabled: args => Boolean(args.runId) || runs.runs.length > 0,
    execute: async args => {
      const runId =
        meant({ runs, shown: () => null }, args) ??
        (await chooseRuns(runs, { several: false }))[0];
      if (runId) {
        open(runId);
      }
    }
  });
  void restorer?.restore(tracker, {
    command: CommandIDs.openRun,
    args: ({ runId }) => ({ runId }),
    name: ({ runId }) => runId
  });
}

function addCompare(context: IContext): void {
  const { app, runs, services, shown, restorer } = context;
  const tracker = new WidgetTracker<CompareWidget>({
    namespace: 'llmops-compare'
  });
  const openRun = (runId: string) =>
    void app.commands.execute(CommandIDs.openRun, { runId });
  const open = (runIds: string[]) => {
    const { llmops, models, charts } = services;
    const make = () =>
      new CompareWidget(
        new CompareModel(llmops, models, runIds),
        charts,
        openRun
      );
    const type = 'LLM Training Comparison';
    openOnce(app, tracker, compareId(runIds), make, { type });
  };
  app.commands.addCommand(CommandIDs.compareRuns, {
    label: trans.__('Compare Runs…'),
    caption: trans.__('Show curves, figures and differences of several runs'),
    icon: compareIcon,
    describedBy: argsOf({
      runIds: {
        type: 'array',
        items: { type: 'string' },
        description: 'Two to eight; with fewer a dialog asks for the others.'
      }
    }),
    isEnabled: (args: ReadonlyPartialJSONObject) =>
      runIdsOf(args).length > 1 || runs.runs.length > 1,
    execute: async args => {
      const given = runIdsOf(args);
      const begin = given.length > 0 ? given : [shown() ?? ''].filter(Boolean);
      const runIds =
        given.length > 1
          ? given
          : await chooseRuns(runs, { several: true, begin });
      if (runIds.length > 1) {
        open(runIds);
      }
    }
  });
  void restorer?.restore(tracker, {
    command: CommandIDs.compareRuns,
    args: ({ runIds }) => ({ runIds: [...runIds] }),
    name: ({ runIds }) => compareId(runIds)
  });
}
