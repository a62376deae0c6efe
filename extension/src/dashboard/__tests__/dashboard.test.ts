import { describe, expect, it } from 'vitest';

import { IClusterModel, IPreferences, IRunsModel } from '../../tokens';
import { ClusterRow, RunRow } from '../../wire';
import { inOrder, readPlan, subjects } from '../layout';
import { dashboardAddress, dashboardId, IPage } from '../pages';
import { jobsOf } from '../toolbar';
import { DashboardWidget } from '../widget';

const BASE = 'http://localhost/user/someone/llmops/dashboard/lab/';

function run(run_id: string, cluster: string, submission_id: string | null) {
  return { run_id, cluster, submission_id } as RunRow;
}

function make(page: IPage | null): DashboardWidget {
  const options = { cluster: 'lab', base: BASE, submissionId: '' };
  return new DashboardWidget({ ...options, page });
}

describe('the dashboard tab', () => {
  it('shows the first page or a job, below an address with a slash', () => {
    expect(dashboardAddress(BASE, {})).toBe(BASE);
    const job = { page: 'logs', submissionId: 'a b' };
    expect(dashboardAddress(BASE, job)).toBe(`${BASE}#/jobs/a%20b`);
    expect(dashboardAddress(BASE, { page: 'logs' })).toBe(`${BASE}#/logs`);
  });

  it('keeps what it shows, and lets the page do only what it needs', () => {
    const widget = make(null);
    expect(widget.address).toBe(BASE);
    widget.open('menu-1');
    expect(widget.submissionId).toBe('menu-1');
    expect(widget.content.url).toBe(`${BASE}#/jobs/menu-1`);
    const frame = widget.content.node.querySelector('iframe');
    expect(frame?.getAttribute('sandbox')).not.toContain('top-navigation');
    expect(frame?.getAttribute('sandbox')).toContain('allow-same-origin');
    expect(frame?.getAttribute('sandbox')).toContain(
      'allow-popups-to-escape-sandbox'
    );
    expect(frame?.title).toContain('lab');
    widget.dispose();
  });

  it('marks a page whose cluster is gone', () => {
    const widget = make(null);
    const gone = ['', 'ready', 'stopped', 'deleted', 'ready'].map(state => {
      widget.setState(state);
      return widget.hasClass('llmops-mod-gone');
    });
    expect(gone).toEqual([false, false, true, true, false]);
    widget.dispose();
  });

  it('offers the jobs of its own cluster', () => {
    const runs = [
      run('a', 'lab', 'a-1'),
      run('b', 'other', 'b-1'),
      run('c', 'lab', null)
    ];
    expect(jobsOf(runs, 'lab').map(one => one.run_id)).toEqual(['a']);
  });
});

describe('a page in a tab of its own', () => {
  it('has its own id, name and address', () => {
    const widget = make({ name: 'logs', label: 'Logs' });
    expect(widget.id).toBe(dashboardId('lab', 'logs'));
    expect(widget.id).not.toBe(dashboardId('lab'));
    expect(widget.title.label).toBe('Ray Logs: lab');
    expect(widget.address).toBe(`${BASE}#/logs`);
    widget.dispose();
  });

  it('shares no id with another cluster, whatever their names', () => {
    expect(dashboardId('a/b/ml/jobs')).not.toBe(dashboardId('a/b/ml', 'jobs'));
  });
});

describe('the training layout', () => {
  it('opens a pane after the one that it is placed beside', () => {
    const plan = readPlan({
      'dashboard-jobs': { mode: 'split-bottom', ref: 'dashboard' },
      dashboard: { mode: 'split-right', ref: 'run' },
      run: { mode: 'tab-after', ref: null }
    });
    const names = inOrder(plan).map(([name]) => name);
    expect(names).toEqual(['run', 'dashboard', 'dashboard-jobs']);
  });

  it('leaves out circles, unknown panes and odd values', () => {
    const plan = readPlan({
      run: { mode: 'sideways', ref: 'dashboard' },
      dashboard: { mode: 'split-top', ref: 'run' },
      'dashboard-logs': { mode: 'tab-before', ref: 'nowhere' },
      nowhere: { mode: 'split-top', ref: null }
    });
    expect(inOrder(plan)).toEqual([
      ['dashboard', { mode: 'split-top', ref: null }],
      ['run', { mode: 'tab-after', ref: 'dashboard' }],
      ['dashboard-logs', { mode: 'tab-before', ref: null }]
    ]);
    expect(readPlan(undefined)).toEqual({});
    expect(readPlan({ run: null }).run).toEqual({
      mode: 'tab-after',
      ref: null
    });
  });

  it('shows the newest run and its cluster, or one that is ready', () => {
    const row = (name: string, state: string) =>
      ({ name, info: { state } }) as ClusterRow;
    const services = (clusters: ClusterRow[], runs: RunRow[], liked = '') => ({
      clusters: { clusters } as unknown as IClusterModel,
      runs: { runs } as unknown as IRunsModel,
      preferences: { defaultCluster: liked } as IPreferences
    });
    const two = [row('a', 'ready'), row('b', 'ready'), row('c', 'dead')];
    const ofB = services(two, [run('r', 'b', null)]);
    expect(subjects(ofB)).toEqual({ cluster: 'b', runId: 'r' });
    expect(subjects(ofB, 'a').cluster).toBe('a');
    expect(subjects(services(two, [run('r', 'c', null)])).cluster).toBe('a');
    expect(subjects(services(two, [], 'b')).cluster).toBe('b');
    expect(subjects(services([], []))).toEqual({ cluster: '', runId: '' });
  });
});
