import { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';

import { argsOf, CommandIDs } from '../commands';
import { runsIcon } from '../icons';
import {
  IClusterModel,
  ILayoutPane,
  ILayoutPlan,
  IPreferences,
  IRunsModel
} from '../tokens';
import { trans } from '../trans';
import { dashboardId, PAGE_NAMES } from './pages';

export const MODES: readonly ILayoutPane['mode'][] = [
  'split-top',
  'split-left',
  'split-right',
  'split-bottom',
  'tab-before',
  'tab-after'
];

/** `run`, `dashboard`, and `dashboard-<page>`. */
const PANE_NAMES: readonly string[] = [
  'run',
  'dashboard',
  ...PAGE_NAMES.map(page => `dashboard-${page}`)
];

export function isMode(value: unknown): value is ILayoutPane['mode'] {
  return MODES.some(mode => mode === value);
}

/**
 * The page that a pane shows, empty for the whole dashboard; null for a pane that is none.
 */
function pageOf(pane: string): string | null {
  return pane.startsWith('dashboard') && PANE_NAMES.includes(pane)
    ? pane.slice('dashboard-'.length)
    : null;
}

/**
 * The panes of a plan, each after the one that it is placed beside. References that lead round in
 * a circle, or to no pane of the plan, are left out.
 */
export function inOrder(plan: ILayoutPlan): [string, ILayoutPane][] {
  const done = new Map<string, ILayoutPane>();
  const visit = (name: string, above: readonly string[]): void => {
    const pane = plan[name];
    if (!pane || done.has(name)) {
      return;
    }
    const { mode, ref } = pane;
    const isGood =
      ref !== null && ref in plan && ![...above, name].includes(ref);
    if (isGood) {
      visit(ref, [...above, name]);
    }
    done.set(name, { mode, ref: isGood ? ref : null });
  };
  Object.keys(plan).forEach(name => visit(name, []));
  return [...done];
}

/** What a user wrote into the settings; what is no pane is left out. */
export function readPlan(value: unknown): ILayoutPlan {
  const plan: Record<string, ILayoutPane> = {};
  for (const [name, pane] of Object.entries(value ?? {})) {
    const { mode, ref } = (pane ?? {}) as Record<string, unknown>;
    if (PANE_NAMES.includes(name)) {
      plan[name] = {
        mode: isMode(mode) ? mode : 'tab-after',
        ref: typeof ref === 'string' ? ref : null
      };
    }
  }
  return plan;
}

interface ILayoutServices {
  app: JupyterFrontEnd;
  clusters: IClusterModel;
  runs: IRunsModel | null;
  preferences: IPreferences;
}

/** What the panes show; empty where there is nothing. */
interface ISubjects {
  cluster: string;
  runId: string;
}

/**
 * The newest run and its cluster; another cluster that is ready where that is not.
 */
export function subjects(
  { clusters, runs, preferences }: Omit<ILayoutServices, 'app'>,
  wanted = ''
): ISubjects {
  const run = runs?.runs[0];
  const ready = clusters.clusters
    .filter(row => row.info?.state === 'ready')
    .map(row => row.name);
  const liked = [wanted, run?.cluster ?? '', preferences.defaultCluster];
  const cluster = liked.find(name => ready.includes(name)) ?? ready[0] ?? '';
  return { cluster, runId: run?.run_id ?? '' };
}

/**
 * `llmops:open-layout {cluster?}` opens the panes of the setting `defaultLayout`.
 */
export function addLayoutCommand(services: ILayoutServices): void {
  const { app, clusters, runs } = services;
  const whyNot = () => {
    const { cluster, runId } = subjects(services);
    return cluster || runId
      ? ''
      : trans.__('There is neither a run nor a cluster that is ready');
  };
  app.commands.addCommand(CommandIDs.openLayout, {
    label: trans.__('Open Training Layout'),
    caption: () =>
      whyNot() ||
      trans.__('Open the newest run and its cluster side by side (a setting)'),
    icon: runsIcon,
    describedBy: argsOf({
      cluster: "Cluster to use instead of the newest run's."
    }),
    isEnabled: () => whyNot() === '',
    execute: args =>
      openPanes(
        services,
        subjects(services, typeof args.cluster === 'string' ? args.cluster : '')
      )
  });
  const look = () => app.commands.notifyCommandChanged(CommandIDs.openLayout);
  clusters.changed.connect(look);
  runs?.changed.connect(look);
}

/** What is open already stays where it is, since a page that moves is loaded again. */
async function openPanes(
  services: ILayoutServices,
  { cluster, runId }: ISubjects
): Promise<void> {
  const { app, preferences } = services;
  const ids = new Map<string, string>();
  const missing: string[] = [];
  const plan = inOrder(readPlan(preferences.defaultLayout));
  for (const [name, { mode, ref }] of plan) {
    const page = pageOf(name);
    const place = { mode, ref: ref === null ? undefined : ids.get(ref) };
    if (page === null && runId) {
      ids.set(name, await openRun(app, runId, place));
    } else if (page !== null && cluster) {
      await app.commands.execute(CommandIDs.openDashboard, {
        cluster,
        page,
        ...place
      });
      ids.set(name, dashboardId(cluster, page));
    } else {
      missing.push(name);
    }
  }
  const first = plan.find(([name]) => ids.has(name));
  if (first) {
    app.shell.activateById(ids.get(first[0]) ?? '');
  }
  if (missing.length > 0) {
    const names = missing.join(', ');
    Notification.info(
      runId
        ? trans.__('No cluster is ready; not opened: %1', names)
        : trans.__('There is no run yet; not opened: %1', names),
      { autoClose: 5000 }
    );
  }
}

/** @returns the id of its tab */
async function openRun(
  app: JupyterFrontEnd,
  runId: string,
  place: { mode: ILayoutPane['mode']; ref?: string }
): Promise<string> {
  const before = new Set(app.shell.widgets('main'));
  await app.commands.execute(CommandIDs.openRun, { runId });
  const widget = app.shell.currentWidget;
  if (widget && !before.has(widget) && place.mode !== 'tab-after') {
    app.shell.add(widget, 'main', place);
  }
  return widget?.id ?? '';
}
