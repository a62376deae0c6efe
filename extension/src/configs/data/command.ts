import { ILayoutRestorer } from '@jupyterlab/application';
import { WidgetTracker } from '@jupyterlab/apputils';

import { CommandIDs } from '../../commands';
import { dataIcon } from '../../icons';
import { ILLMOps } from '../../tokens';
import { trans } from '../../trans';
import { openOnce } from '../../ui/widgets';
import {
  FILE,
  FROM_BROWSER,
  ITargets,
  PATH_ARGS,
  target,
  textOf
} from '../configCommands';
import * as requests from '../requests';
import { DataModel } from './model';
import { DataWidget, dataWidgetId } from './view';

interface IServices extends ITargets {
  llmops: ILLMOps;
  restorer: ILayoutRestorer | null;
}

/**
 * Shows the data of the config that is edited, selected or named.
 */
export function addDataCommand(services: IServices): void {
  const { app, submissions, restorer } = services;
  const tracker = new WidgetTracker<DataWidget>({ namespace: 'llmops-data' });
  const pathOf = (args: Parameters<typeof target>[1]) => {
    const path = target(services, args, true);
    return submissions.kinds.of(path ?? '')?.name === 'train' ? path : null;
  };
  app.commands.addCommand(CommandIDs.showData, {
    label: args =>
      args.from
        ? trans.__('Show Its Data')
        : trans.__('Show the Data of This Config'),
    caption: trans.__(
      'Show the rows as the model will see them, without starting anything'
    ),
    icon: dataIcon,
    describedBy: PATH_ARGS,
    isEnabled: args => pathOf(args) !== null,
    isVisible: args => !args.from || pathOf(args) !== null,
    execute: args => {
      const path = pathOf(args);
      if (path !== null) {
        open(services, tracker, path);
      }
    }
  });
  app.contextMenu.addItem({
    command: CommandIDs.showData,
    selector: FILE,
    rank: 3.25,
    args: FROM_BROWSER
  });
  void submissions.kinds.ready.then(() =>
    restorer?.restore(tracker, {
      command: CommandIDs.showData,
      args: ({ model }) => ({ path: model.path }),
      name: ({ model }) => model.path
    })
  );
}

function open(
  services: IServices,
  tracker: WidgetTracker<DataWidget>,
  path: string
): void {
  const widget = openOnce(
    services.app,
    tracker,
    dataWidgetId(path),
    () => new DataWidget(modelOf(services, path)),
    { type: 'LLM Training Data' }
  );
  void widget.model.load();
}

function modelOf(services: IServices, path: string): DataModel {
  const { app, llmops, editors } = services;
  return new DataModel(path, {
    text: async () => {
      // As it is edited now, saved or not.
      const open = [...editors.values()].find(editor => editor.path === path);
      return open ? open.text : textOf(app, path);
    },
    data: (body, signal) => requests.data(llmops, body, signal),
    row: (body, signal) => requests.dataRow(llmops, body, signal)
  });
}
