import { ReactWidget, UseSignal } from '@jupyterlab/apputils';
import {
  launchIcon,
  refreshIcon,
  ToolbarButton
} from '@jupyterlab/ui-components';
import * as React from 'react';

import { stateOf } from '../clusters/model';
import { nameWithId } from '../runs/model';
import { IClusterModel, IRunsModel } from '../tokens';
import { trans } from '../trans';
import { StateBadge } from '../ui/parts';
import { RunRow } from '../wire';
import { DashboardWidget } from './widget';

const NUM_RUNS = 20;

/**
 * Reload, open elsewhere, and the way to the job of one of the cluster's runs.
 */
export function fillToolbar(
  widget: DashboardWidget,
  options: {
    runs: IRunsModel | null;
    clusters: IClusterModel;
    go: (submissionId: string) => void;
  }
): void {
  const { toolbar, cluster } = widget;
  const { runs, clusters, go } = options;
  toolbar.addItem(
    'reload',
    new ToolbarButton({
      icon: refreshIcon,
      tooltip: trans.__('Reload the Ray Dashboard'),
      onClick: () => widget.reload()
    })
  );
  toolbar.addItem(
    'open',
    new ToolbarButton({
      icon: launchIcon,
      tooltip: trans.__('Open in a new browser tab'),
      onClick: () => {
        window.open(widget.address, '_blank', 'noopener');
      }
    })
  );
  if (runs) {
    toolbar.addItem('runs', new JobChoice(cluster, runs, go));
  }
  toolbar.addItem('state', new ClusterState(cluster, clusters));
}

/** Says when the page below is only a memory. */
class ClusterState extends ReactWidget {
  constructor(
    private cluster: string,
    private clusters: IClusterModel
  ) {
    super();
    this.addClass('llmops-dashboard-state');
  }

  protected override render(): JSX.Element {
    const { cluster, clusters } = this;
    return (
      <UseSignal signal={clusters.changed}>
        {() => {
          const state = stateOf(clusters, cluster);
          return state === '' || state === 'ready' ? null : (
            <>
              <StateBadge state={state} />
              {trans.__('The page below may be out of date.')}
            </>
          );
        }}
      </UseSignal>
    );
  }
}

class JobChoice extends ReactWidget {
  constructor(
    private cluster: string,
    private runs: IRunsModel,
    private goTo: (submissionId: string) => void
  ) {
    super();
    this.addClass('llmops-dashboard-runs');
  }

  protected override render(): JSX.Element {
    const { cluster, runs, goTo } = this;
    return (
      <UseSignal signal={runs.changed}>
        {() => (
          <select
            title={trans.__('Show the job of a run')}
            aria-label={trans.__('Show the job of a run')}
            value=""
            onChange={event => goTo(event.target.value)}
          >
            <option value="">{trans.__('Job of a run…')}</option>
            {jobsOf(runs.runs, cluster).map(run => (
              <option key={run.run_id} value={run.submission_id ?? ''}>
                {`${nameWithId(run)}, ${run.state.toLowerCase()}`}
              </option>
            ))}
          </select>
        )}
      </UseSignal>
    );
  }
}

/** The newest runs of a cluster that Ray was given. */
export function jobsOf(runs: readonly RunRow[], cluster: string): RunRow[] {
  return runs
    .filter(run => run.cluster === cluster && run.submission_id)
    .slice(0, NUM_RUNS);
}
