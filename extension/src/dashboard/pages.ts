import { trans } from '../trans';

/**
 * One of the pages that the Ray Dashboard's own bar leads to; the name is its route. Without Serve:
 * where that is not installed its page is an error.
 */
export interface IPage {
  name: string;
  label: string;
}

const NAMES = [
  'overview',
  'jobs',
  'cluster',
  'actors',
  'logs',
  'metrics'
] as const;

/** In the order in which they are offered. */
export const PAGE_NAMES: readonly string[] = NAMES;

export function pages(): IPage[] {
  const labels: Record<(typeof NAMES)[number], string> = {
    overview: trans.__('Overview'),
    jobs: trans.__('Jobs'),
    cluster: trans.__('Cluster'),
    actors: trans.__('Actors'),
    logs: trans.__('Logs'),
    metrics: trans.__('Metrics')
  };
  return NAMES.map(name => ({ name, label: labels[name] }));
}

/**
 * What a tab shows: a job's page, one page, or, with both empty, the dashboard as it opens.
 * Ray's page finds its own parts only below an address that ends in a slash.
 */
export function dashboardAddress(
  base: string,
  { page = '', submissionId = '' }: { page?: string; submissionId?: string }
): string {
  if (submissionId) {
    return `${base}#/jobs/${encodeURIComponent(submissionId)}`;
  }
  return page ? `${base}#/${page}` : base;
}

/**
 * Unlike that of any other tab, and the name under which it is restored. A name such as
 * `context/namespace/name` has slashes.
 */
export function dashboardKey(cluster: string, page = ''): string {
  return `${encodeURIComponent(cluster)}${page ? `/${page}` : ''}`;
}

export function dashboardId(cluster: string, page = ''): string {
  return `llmops-dashboard-${dashboardKey(cluster, page)}`;
}
