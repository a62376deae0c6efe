import { ILayoutRestorer } from '@jupyterlab/application';
import { WidgetTracker } from '@jupyterlab/apputils';
import { LabIcon } from '@jupyterlab/ui-components';

import { listTemplates } from '../clusters/requests';
import { CommandIDs } from '../commands';
import { dataIcon, planIcon } from '../icons';
import { ILLMOps } from '../tokens';
import { trans } from '../trans';
import { MainView, openOnce } from '../ui/widgets';
import { addFileCommand, ITargets, textOf } from './configCommands';
import { DataModel } from './data/model';
import { DataWidget, dataWidgetId } from './data/view';
import { PlanModel } from './plan/model';
import { PlanWidget, planWidgetId } from './plan/view';
import * as requests from './requests';

interface IServices extends ITargets {
  llmops: ILLMOps;
  restorer: ILayoutRestorer | null;
}

interface IModel {
  readonly path: string;
  load(): Promise<void>;
  dispose(): void;
}

/** A view of one training config in the main area, and the command that opens it. */
interface IConfigView<View extends MainView<IModel>> {
  id: string;
  /** Of the tracker; restored by it after a reload. */
  namespace: string;
  type: string;
  label: string;
  /** In the context menu, where the file is plain to see. */
  short: string;
  caption: string;
  icon: LabIcon;
  rank: number;
  widgetId: (path: string) => string;
  create: (path: string) => View;
}

/**
 * Shows the data, and the plan, of the config that is edited, selected or named.
 */
export function addViewCommands(services: IServices): void {
  addViewCommand(services, {
    id: CommandIDs.showData,
    namespace: 'llmops-data',
    type: 'LLM Training Data',
    label: trans.__('Show the Data of This Config'),
    short: trans.__('Show Its Data'),
    caption: trans.__(
      'Show the rows as the model will see them, without starting anything'
    ),
    icon: dataIcon,
    rank: 3.25,
    widgetId: dataWidgetId,
    create: path => new DataWidget(dataModel(services, path))
  });
  addViewCommand(services, {
    id: CommandIDs.showPlan,
    namespace: 'llmops-plan',
    type: 'LLM Training Plan',
    label: trans.__('Show the Plan of This Config'),
    short: trans.__('Show Its Plan'),
    caption: trans.__(
      'Show memory, speed and cost that are expected, without starting anything'
    ),
    icon: planIcon,
    rank: 3.26,
    widgetId: planWidgetId,
    create: path => new PlanWidget(planModel(services, path))
  });
}

function addViewCommand<View extends MainView<IModel>>(
  services: IServices,
  view: IConfigView<View>
): void {
  const { app, submissions, restorer } = services;
  const { id, namespace, label, short, caption, icon, rank, type } = view;
  const tracker = new WidgetTracker<View>({ namespace });
  const run = (path: string) => {
    const create = () => view.create(path);
    const widgetId = view.widgetId(path);
    void openOnce(app, tracker, widgetId, create, { type }).model.load();
  };
  const about = { id, label, short, caption, icon, rank };
  addFileCommand(services, { ...about, isRun: true, kind: 'train', run });
  void submissions.kinds.ready.then(() =>
    restorer?.restore(tracker, {
      command: id,
      args: ({ model }) => ({ path: model.path }),
      name: ({ model }) => model.path
    })
  );
}

/** The text as it is edited now, saved or not. */
async function editedText(services: IServices, path: string): Promise<string> {
  const { app, editors } = services;
  const open = [...editors.values()].find(editor => editor.path === path);
  return open ? open.text : textOf(app, path);
}

function dataModel(services: IServices, path: string): DataModel {
  const { llmops } = services;
  return new DataModel(path, {
    text: () => editedText(services, path),
    data: (body, signal) => requests.data(llmops, body, signal),
    row: (body, signal) => requests.dataRow(llmops, body, signal)
  });
}

function planModel(services: IServices, path: string): PlanModel {
  const { llmops } = services;
  const model = new PlanModel(path, {
    text: () => editedText(services, path),
    plan: (body, signal) => requests.plan(llmops, body, signal),
    templates: () => listTemplates(llmops)
  });
  void model.loadClusters();
  return model;
}
