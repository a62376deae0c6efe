import { trans } from '../trans';
import * as fmt from '../ui/format';
import { ClusterInfo } from '../wire';

/** From when on the end of a cluster is worth a line with a button. */
export const SOON_S = 15 * 60;

/**
 * Return when the cluster will be stopped automatically, the earliest reason first; empty when it will not.
 */
export function deadline(info: ClusterInfo, nowS: number): string {
  const { suspends_at_s, ends_at_s, kept_until_s } = info;
  if (kept_until_s !== null && kept_until_s > nowS) {
    return trans.__('kept for %1', left(kept_until_s, nowS));
  }
  if (suspends_at_s !== null && suspends_at_s <= (ends_at_s ?? Infinity)) {
    return trans.__('suspends in %1', left(suspends_at_s, nowS));
  }
  return ends_at_s === null
    ? ''
    : trans.__('ends in %1', left(ends_at_s, nowS));
}

/** Whether somebody who wants to keep it must say so soon. */
export function isSoon(info: ClusterInfo, nowS: number): boolean {
  const { suspends_at_s, ends_at_s, kept_until_s } = info;
  if (kept_until_s !== null && kept_until_s > nowS) {
    return false;
  }
  const first = Math.min(suspends_at_s ?? Infinity, ends_at_s ?? Infinity);
  return first - nowS < SOON_S;
}

function left(untilS: number, nowS: number): string {
  return fmt.duration(Math.max(0, Math.round(untilS - nowS)));
}
