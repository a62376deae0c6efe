import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import {
  ICommandPalette,
  InputDialog,
  WidgetTracker
} from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { dashboardIcon } from '../clusters/icons';
import { stateOf } from '../clusters/model';
import { CATEGORY, CommandIDs } from '../commands';
import { IClusterModel, ILLMOps, IRunsModel } from '../tokens';
import { fillToolbar } from './toolbar';
import { dashboardId, DashboardWidget } from './widget';

const DESCRIBED_BY = {
  args: {
    type: 'object',
    properties: {
      cluster: {
        type: 'string',
        description: 'Name of the cluster; without it the user is asked.'
      },
      submissionId: {
        type: 'string',
        description: 'The job whose page is shown.'
      }
    }
  }
};

/**
 * The Ray Dashboard of each cluster in a tab, through our own proxy.
 */
export const dashboardPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:dashboard',
  description: 'Opens Ray Dashboards in the main area.',
  autoStart: true,
  requires: [ILLMOps, IClusterModel],
  optional: [IRunsModel, ITranslator, ICommandPalette, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    llmops: ILLMOps,
    clusters: IClusterModel,
    runs: IRunsModel | null,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null
  ) => {
    const trans = (translator ?? nullTranslator).load('llmops');
    const tracker = new WidgetTracker<DashboardWidget>({
      namespace: 'llmops-dashboard'
    });
    const go = (widget: DashboardWidget, submissionId: string) => {
      widget.open(submissionId);
      void tracker.save(widget);
    };
    const open = (cluster: string, submissionId: string) => {
      let widget = tracker.find(({ id }) => id === dashboardId(cluster));
      if (!widget) {
        const path = `dashboard/${encodeURIComponent(cluster)}/`;
        const made = new DashboardWidget(
          cluster,
          llmops.url(path),
          submissionId
        );
        fillToolbar(made, { runs, clusters, trans, go: job => go(made, job) });
        void tracker.add(made);
        app.shell.add(made, 'main');
        widget = made;
      } else if (submissionId) {
        go(widget, submissionId);
      }
      app.shell.activateById(widget.id);
    };
    app.commands.addCommand(CommandIDs.openDashboard, {
      label: trans.__('Open Ray Dashboard'),
      caption: args =>
        whyNot(clusters, args) || trans.__("Show Ray's own page of a cluster"),
      icon: dashboardIcon,
      describedBy: DESCRIBED_BY,
      isEnabled: args => whyNot(clusters, args) === '',
      execute: async args => {
        const cluster = text(args.cluster) || (await choose(clusters, trans));
        if (cluster) {
          open(cluster, text(args.submissionId));
        }
      }
    });
    palette?.addItem({ command: CommandIDs.openDashboard, category: CATEGORY });
    void restorer?.restore(tracker, {
      command: CommandIDs.openDashboard,
      args: ({ cluster, submissionId }) => ({ cluster, submissionId }),
      name: ({ cluster }) => cluster
    });
    const follow = () => {
      app.commands.notifyCommandChanged(CommandIDs.openDashboard);
      tracker.forEach(widget =>
        widget.setState(stateOf(clusters, widget.cluster))
      );
    };
    clusters.changed.connect(follow);
    tracker.widgetAdded.connect(follow);
  }
};

/** A tab that is restored may come before the clusters are known: its page tells the rest. */
function whyNot(
  clusters: IClusterModel,
  args: ReadonlyPartialJSONObject
): string {
  if (
    !clusters.isKnown ||
    (args.cluster && !clusters.find(text(args.cluster)))
  ) {
    return '';
  }
  const rows = args.cluster
    ? [clusters.find(text(args.cluster))]
    : clusters.clusters;
  return rows.some(row => row?.info?.state === 'ready')
    ? ''
    : 'No cluster is ready';
}

async function choose(
  clusters: IClusterModel,
  trans: { __(text: string): string }
): Promise<string> {
  const names = clusters.clusters
    .filter(row => row.info?.state === 'ready')
    .map(row => row.name);
  if (names.length < 2) {
    return names[0] ?? '';
  }
  const result = await InputDialog.getItem({
    title: trans.__('Ray Dashboard of which cluster?'),
    items: names
  });
  return result.button.accept ? (result.value ?? '') : '';
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
