import { ReactWidget } from '@jupyterlab/apputils';
import { TextItem } from '@jupyterlab/statusbar';
import * as React from 'react';

import { hasEnded } from '../runs/model';
import { IClusterModel, ILive, IRunsModel } from '../tokens';
import { trans } from '../trans';
import * as fmt from '../ui/format';
import { ClusterRow, RunRow } from '../wire';

const LOCAL = 'local';

/**
 * One line about all of it: `local · GPUs 3/8 · 2 runs`.
 */
export class StatusItem extends ReactWidget {
  constructor(
    private clusters: IClusterModel,
    private runs: IRunsModel,
    private live: ILive,
    private onClick: () => void
  ) {
    super();
    this.addClass('jp-mod-highlighted');
    this.addClass('llmops-status');
    const redraw = () => this.update();
    clusters.changed.connect(redraw);
    runs.changed.connect(redraw);
    live.statusChanged.connect(redraw);
    this.disposed.connect(() => {
      clusters.changed.disconnect(redraw);
      runs.changed.disconnect(redraw);
      live.statusChanged.disconnect(redraw);
    });
  }

  protected override render(): JSX.Element {
    const { clusters, runs } = this;
    const active = runs.runs.filter(run => !hasEnded(run));
    const known = clusters.isKnown && runs.isKnown;
    const text =
      this.live.isConnected && known
        ? statusText(clusters.clusters, active)
        : this.live.isConnected
          ? trans.__('Ray: …')
          : trans.__('Ray: not connected');
    const title = this.live.isConnected
      ? trans.__('Ray clusters, their resources in use, and active runs')
      : trans.__('The Jupyter server does not answer; trying again');
    return (
      <TextItem
        source={text}
        title={title}
        role="button"
        aria-label={text}
        tabIndex={0}
        onClick={this.onClick}
        onKeyDown={event => {
          if (event.key === 'Enter' || event.key === ' ') {
            this.onClick();
          }
        }}
      />
    );
  }
}

/**
 * Names one cluster, counts several; CPUs where there are no GPUs; unknown is a dash.
 */
export function statusText(
  rows: readonly ClusterRow[],
  active: readonly Pick<RunRow, 'state'>[]
): string {
  const up = rows.filter(row => row.info?.state === 'ready');
  const jobs = runsText(active);
  if (up.length === 0 && rows.some(row => row.info?.state === 'starting')) {
    return trans.__('Ray: starting');
  }
  if (up.length === 0) {
    return active.length > 0
      ? `${trans.__('Ray: no cluster')} · ${jobs}`
      : trans.__('Ray: no cluster');
  }
  const name =
    up.length === 1 ? up[0].name : trans.__('%1 clusters', up.length);
  const hasGpus = up.some(row => (row.info?.num_gpus ?? 0) > 0);
  const used = sum(up.map(r => r.info?.[hasGpus ? 'gpus_used' : 'cpus_used']));
  const total = sumOfMachines(up, hasGpus ? 'num_gpus' : 'num_cpus');
  const what = hasGpus ? 'GPUs' : 'CPUs';
  return `${name} · ${what} ${fmt.amount(used)}/${fmt.amount(total)} · ${jobs}`;
}

/** `2 runs`, `3 runs (1 queued)`. */
export function runsText(active: readonly Pick<RunRow, 'state'>[]): string {
  const all = trans._n('%1 run', '%1 runs', active.length);
  const queued = active.filter(run => run.state === 'QUEUED').length;
  return queued ? trans.__('%1 (%2 queued)', all, queued) : all;
}

/** All local clusters are on one machine, which is counted once: by the largest of them. */
function sumOfMachines(
  rows: readonly ClusterRow[],
  field: 'num_cpus' | 'num_gpus'
): number | null {
  const isLocal = (row: ClusterRow) => row.provider === LOCAL;
  const value = (row: ClusterRow) => row.info?.[field];
  const local = rows.filter(isLocal).map(value);
  const largest =
    sum(local) === null ? null : Math.max(0, ...local.map(one => one ?? 0));
  const others = rows.filter(row => !isLocal(row)).map(value);
  return sum([largest, ...others]);
}

/** Of parts that are not all known the sum is not known. */
function sum(values: (number | null | undefined)[]): number | null {
  let total = 0;
  for (const value of values) {
    if (value === null || value === undefined) {
      return null;
    }
    total += value;
  }
  return total;
}
