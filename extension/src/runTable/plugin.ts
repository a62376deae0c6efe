import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, WidgetTracker } from '@jupyterlab/apputils';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { argsOf, CATEGORY, CommandIDs } from '../commands';
import { runsIcon } from '../icons';
import { ILLMOps, IOperations, IRunsModel } from '../tokens';
import { trans } from '../trans';
import { openAt, rowMenu } from '../ui/menu';
import { TableActions } from './actions';
import { RunTableModel } from './model';
import * as requests from './requests';
import { stateOf } from './state';
import { RunTableWidget } from './widget';

const MENU = [
  CommandIDs.openRun,
  CommandIDs.stopRun,
  CommandIDs.moveRun,
  CommandIDs.retryRun,
  CommandIDs.resubmitRun,
  '',
  CommandIDs.starRun,
  CommandIDs.renameRun,
  CommandIDs.copyRunId,
  CommandIDs.openRunFolder,
  '',
  CommandIDs.deleteRun
];

const DESCRIBED_BY = argsOf({
  where: 'Only runs that match: method.r > 8 and eval_loss < 0.4',
  sort: 'Columns; a minus: largest first.',
  group: 'Columns to group by.'
});

/**
 * Shows all runs as a table in the main area.
 */
export const runTablePlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:run-table',
  description: 'Filters, sorts, groups and compares all runs in a table.',
  autoStart: true,
  requires: [ILLMOps, IRunsModel, IOperations],
  optional: [ICommandPalette, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    llmops: ILLMOps,
    runs: IRunsModel,
    operations: IOperations,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null
  ) => {
    const { commands, shell } = app;
    const tracker = new WidgetTracker<RunTableWidget>({
      namespace: 'llmops-run-table'
    });
    const create = (args: ReadonlyPartialJSONObject) => {
      const model = new RunTableModel(sourceOf(llmops, runs), stateOf(args));
      const actions = new TableActions({ llmops, operations, commands }, model);
      const open = (runId: string) =>
        void commands.execute(CommandIDs.openRun, { runId });
      const menu = (runId: string, event: React.MouseEvent) => {
        event.preventDefault();
        event.stopPropagation();
        const open = () => openAt(rowMenu(commands, MENU, { runId }), event);
        // An older run is not in the list; one that cannot be read has only what needs no state.
        void runs.read(runId).then(open, open);
      };
      return new RunTableWidget(model, { actions, open, menu });
    };
    commands.addCommand(CommandIDs.showRunTable, {
      label: trans.__('Show All Runs as a Table'),
      caption: trans.__('Filter, sort, group and compare all runs'),
      icon: runsIcon,
      describedBy: DESCRIBED_BY,
      execute: args => {
        let widget = tracker.currentWidget;
        if (!widget || widget.isDisposed) {
          widget = create(args);
          void tracker.add(widget);
          const saved = widget;
          widget.model.changed.connect(() => void tracker.save(saved));
          shell.add(widget, 'main', { type: 'LLM Training Runs' });
        } else if (Object.keys(args).length > 0) {
          widget.model.set(stateOf(args));
        }
        shell.activateById(widget.id);
      }
    });
    palette?.addItem({ command: CommandIDs.showRunTable, category: CATEGORY });
    void restorer?.restore(tracker, {
      command: CommandIDs.showRunTable,
      args: ({ model }) => ({
        ...model.state,
        columns: [...model.state.columns]
      }),
      name: () => 'runs'
    });
  }
};

function sourceOf(llmops: ILLMOps, runs: IRunsModel) {
  return {
    table: requests.table.bind(null, llmops),
    rays: requests.rays.bind(null, llmops),
    ids: requests.ids.bind(null, llmops),
    columns: async () => (await requests.columns(llmops)).columns,
    changed: runs.changed
  };
}
