import { TranslationBundle } from '@jupyterlab/translation';

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

export function pages(trans: TranslationBundle): IPage[] {
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

/** No cluster's name has a slash, so that no two tabs share an id. */
export function dashboardId(cluster: string, page = ''): string {
  return `llmops-dashboard-${cluster}${page ? `/${page}` : ''}`;
}
