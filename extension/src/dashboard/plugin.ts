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
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { DockLayout } from '@lumino/widgets';

import { stateOf } from '../clusters/model';
import { argsOf, CATEGORY, CommandIDs } from '../commands';
import { dashboardIcon } from '../icons';
import { IClusterModel, ILLMOps, IPreferences, IRunsModel } from '../tokens';
import { trans } from '../trans';
import { openOnce } from '../ui/widgets';
import { addLayoutCommand, isMode, MODES } from './layout';
import { dashboardId, dashboardKey, PAGE_NAMES, pages } from './pages';
import { fillToolbar } from './toolbar';
import { DashboardWidget } from './widget';

const DESCRIBED_BY = argsOf({
  cluster: 'Name of the cluster; without it the user is asked.',
  page: {
    enum: [...PAGE_NAMES],
    description: 'Opens this page in a separate tab.'
  },
  submissionId: 'The job whose page is shown.',
  mode: {
    enum: [...MODES],
    description: 'Position of a new tab relative to `ref`.'
  },
  ref: 'Id of a tab of the main area.'
});

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

interface IWanted {
  cluster: string;

  /** Empty: the whole dashboard. */
  page: string;
  submissionId: string;

  /** Where a new tab goes; the shell's own choice without. */
  mode?: DockLayout.InsertMode;
  ref?: string;
}

/**
 * One tab for each cluster and page; what is open already is brought to the front.
 */
class Dashboards {
  constructor(
    private services: {
      app: JupyterFrontEnd;
      llmops: ILLMOps;
      clusters: IClusterModel;
      runs: IRunsModel | null;
    }
  ) {}

  readonly tracker = new WidgetTracker<DashboardWidget>({
    namespace: 'llmops-dashboard'
  });

  open(wanted: IWanted): void {
    const { cluster, page, submissionId, mode, ref } = wanted;
    const id = dashboardId(cluster, page);
    const isOpen = this.tracker.find(widget => widget.id === id) !== undefined;
    const widget = openOnce(
      this.services.app,
      this.tracker,
      id,
      () => this.make(wanted),
      { mode, ref, type: 'Ray Dashboard' }
    );
    if (isOpen && submissionId) {
      this.go(widget, submissionId);
    }
  }

  private make({ cluster, page, submissionId }: IWanted): DashboardWidget {
    const { llmops, clusters, runs } = this.services;
    const widget = new DashboardWidget({
      cluster,
      base: llmops.url(`dashboard/${encodeURIComponent(cluster)}/`),
      page: pages().find(({ name }) => name === page) ?? null,
      submissionId
    });
    const go = (job: string) => this.go(widget, job);
    fillToolbar(widget, { runs, clusters, go });
    return widget;
  }

  private go(widget: DashboardWidget, submissionId: string): void {
    widget.open(submissionId);
    void this.tracker.save(widget);
  }
}
