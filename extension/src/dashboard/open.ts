import { JupyterFrontEnd } from '@jupyterlab/application';
import { WidgetTracker } from '@jupyterlab/apputils';
import { DockLayout } from '@lumino/widgets';

import { IClusterModel, ILLMOps, IRunsModel } from '../tokens';
import { dashboardId, pages } from './pages';
import { fillToolbar } from './toolbar';
import { DashboardWidget } from './widget';

export interface IWanted {
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
export class Dashboards {
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
    const { shell } = this.services.app;
    const { cluster, page, submissionId, mode, ref } = wanted;
    const wantedId = dashboardId(cluster, page);
    let widget = this.tracker.find(({ id }) => id === wantedId);
    if (!widget) {
      widget = this.make(wanted);
      void this.tracker.add(widget);
      shell.add(widget, 'main', { mode, ref, type: 'Ray Dashboard' });
    } else if (submissionId) {
      this.go(widget, submissionId);
    }
    shell.activateById(widget.id);
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
