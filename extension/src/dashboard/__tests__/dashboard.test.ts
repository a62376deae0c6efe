import { describe, expect, it } from 'vitest';

import { RunRow } from '../../wire';
import { jobsOf } from '../toolbar';
import { dashboardAddress, DashboardWidget } from '../widget';

const BASE = 'http://localhost/user/someone/llmops/dashboard/lab/';

function run(run_id: string, cluster: string, submission_id: string | null) {
  return { run_id, cluster, submission_id } as RunRow;
}

describe('the dashboard tab', () => {
  it('shows the first page or a job, below an address with a slash', () => {
    expect(dashboardAddress(BASE, '')).toBe(BASE);
    expect(dashboardAddress(BASE, 'a b')).toBe(`${BASE}#/jobs/a%20b`);
  });

  it('keeps what it shows, and lets the page do only what it needs', () => {
    const widget = new DashboardWidget('lab', BASE, '');
    expect(widget.address).toBe(BASE);
    widget.open('menu-1');
    expect(widget.submissionId).toBe('menu-1');
    expect(widget.content.url).toBe(`${BASE}#/jobs/menu-1`);
    const frame = widget.content.node.querySelector('iframe');
    expect(frame?.getAttribute('sandbox')).not.toContain('top-navigation');
    expect(frame?.getAttribute('sandbox')).toContain('allow-same-origin');
    expect(frame?.title).toContain('lab');
    widget.dispose();
  });

  it('marks a page whose cluster is gone', () => {
    const widget = new DashboardWidget('lab', BASE, '');
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
