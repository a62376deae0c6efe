import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, InputDialog } from '@jupyterlab/apputils';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { DockLayout } from '@lumino/widgets';

import { dashboardIcon } from '../clusters/icons';
import { stateOf } from '../clusters/model';
import { CATEGORY, CommandIDs } from '../commands';
import { IClusterModel, ILLMOps, IPreferences, IRunsModel } from '../tokens';
import { trans } from '../trans';
import { isMode, MODES } from './layout';
import { addLayoutCommand } from './layoutCommand';
import { Dashboards } from './open';
import { dashboardKey, PAGE_NAMES, pages } from './pages';

const DESCRIBED_BY = {
  args: {
    type: 'object',
    properties: {
      cluster: {
        type: 'string',
        description: 'Name of the cluster; without it the user is asked.'
      },
      page: {
        enum: [...PAGE_NAMES],
        description: 'Opens this page in a separate tab.'
      },
      submissionId: {
        type: 'string',
        description: 'The job whose page is shown.'
      },
      mode: {
        enum: [...MODES],
        description: 'Position of a new tab relative to `ref`.'
      },
      ref: { type: 'string', description: 'Id of a tab of the main area.' }
    }
  }
};

/**
 * The Ray Dashboard of each cluster in tabs, through our own proxy.
 */
export const dashboardPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:dashboard',
  description: 'Opens Ray Dashboards in the main area.',
  autoStart: true,
  requires: [ILLMOps, IClusterModel],
  optional: [IRunsModel, ICommandPalette, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    llmops: ILLMOps,
    clusters: IClusterModel,
    runs: IRunsModel | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null
  ) => {
    const services = { app, llmops, clusters, runs };
    const dashboards = new Dashboards(services);
    const { tracker } = dashboards;
    const command = CommandIDs.openDashboard;
    addOpen(services, dashboards);
    ['', ...PAGE_NAMES].forEach(page =>
      palette?.addItem({
        command,
        category: CATEGORY,
        args: page ? { page } : {}
      })
    );
    void restorer?.restore(tracker, {
      command,
      args: ({ cluster, page, submissionId }) => ({
        cluster,
        page,
        submissionId
      }),
      name: ({ cluster, page }) => dashboardKey(cluster, page)
    });
    const follow = () => {
      app.commands.notifyCommandChanged(command);
      tracker.forEach(widget =>
        widget.setState(stateOf(clusters, widget.cluster))
      );
    };
    clusters.changed.connect(follow);
    tracker.widgetAdded.connect(follow);
  }
};

/**
 * The newest run and the pages of its cluster, placed as the user likes them.
 */
export const layoutPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:layout',
  description: 'Opens a run and pages of the Ray Dashboard side by side.',
  autoStart: true,
  requires: [IClusterModel, IPreferences],
  optional: [IRunsModel, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    clusters: IClusterModel,
    preferences: IPreferences,
    runs: IRunsModel | null,
    palette: ICommandPalette | null
  ) => {
    addLayoutCommand({ app, clusters, runs, preferences });
    palette?.addItem({ command: CommandIDs.openLayout, category: CATEGORY });
  }
};

function addOpen(
  services: {
    app: JupyterFrontEnd;
    clusters: IClusterModel;
  },
  dashboards: Dashboards
): void {
  const { app, clusters } = services;
  app.commands.addCommand(CommandIDs.openDashboard, {
    label: args => label(args),
    caption: args =>
      whyNot(clusters, args) || trans.__("Show Ray's dashboard of a cluster"),
    icon: dashboardIcon,
    describedBy: DESCRIBED_BY,
    isEnabled: args => whyNot(clusters, args) === '',
    execute: async args => {
      const cluster = text(args.cluster) || (await choose(clusters));
      if (cluster) {
        dashboards.open({
          cluster,
          page: PAGE_NAMES.includes(text(args.page)) ? text(args.page) : '',
          submissionId: text(args.submissionId),
          mode: placed(args.mode),
          ref: text(args.ref) || undefined
        });
      }
    }
  });
}

function label(args: ReadonlyPartialJSONObject): string {
  const page = pages().find(({ name }) => name === args.page);
  return page
    ? trans.__('Open Ray Dashboard: %1', page.label)
    : trans.__('Open Ray Dashboard');
}

function placed(value: unknown): DockLayout.InsertMode | undefined {
  return isMode(value) ? value : undefined;
}

/** A restored tab may open before the clusters are known: its page shows the rest. */
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

async function choose(clusters: IClusterModel): Promise<string> {
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
