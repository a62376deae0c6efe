import * as React from 'react';

import { trans } from '../trans';
import * as fmt from '../ui/format';
import { ClusterInfo, ClusterRow, Waiting } from '../wire';

interface IProps {
  row: ClusterRow;

  /** By the server's clock. */
  nowS: number;
  keep: () => void;
}

/**
 * What is wrong or odd, why it waits, when it goes away, and how old the news is.
 */
export function Notes(props: IProps): JSX.Element | null {
  const { row } = props;
  const { info, stale } = row;
  const isShown = info !== null && info.state !== 'stopped';
  const waiting = isShown ? info.waiting : [];
  const showsMessage = info && isOdd(info) && !row.doing;
  const showsEnd = isShown && isSoon(info, props.nowS);
  if (!stale && !showsMessage && !showsEnd && waiting.length === 0) {
    return null;
  }
  return (
    <div className="llmops-clusters-notes">
      {showsMessage && (
        <div className="llmops-clusters-odd">
          {info.message && <div>{info.message}</div>}
          {info.remedy && <div>{trans.__('Try: %1', info.remedy)}</div>}
        </div>
      )}
      {waiting.length > 0 && <Reasons reasons={waiting} />}
      {showsEnd && <End {...props} info={info} />}
      {stale && <Stale {...props} />}
    </div>
  );
}

/** A stopped cluster is as somebody wanted it; its button is there. */
function isOdd(info: ClusterInfo): boolean {
  const { message, remedy, waiting } = info;
  // The first reason is often the message too.
  const isTold = waiting.some(reason => reason.message === message);
  return (
    (message !== '' && !isTold) ||
    (message === '' && remedy !== '' && info.state !== 'stopped')
  );
}

function Reasons(props: { reasons: readonly Waiting[] }): JSX.Element {
  const { reasons } = props;
  return (
    <ul
      className="llmops-clusters-waiting"
      aria-label={trans.__('What it waits for')}
    >
      {reasons.map(({ message, remedy, is_stuck }, index) => (
        <li key={index} className={is_stuck ? 'llmops-mod-stuck' : ''}>
          <div>{message}</div>
          {remedy && <div>{trans.__('Try: %1', remedy)}</div>}
        </li>
      ))}
    </ul>
  );
}

function End(props: IProps & { info: ClusterInfo }): JSX.Element {
  const { info, nowS, keep } = props;
  return (
    <div className="llmops-clusters-end" role="status">
      <span>{trans.__('This cluster %1.', deadline(info, nowS))}</span>
      <button type="button" className="jp-mod-styled" onClick={keep}>
        {trans.__('Keep 2 h')}
      </button>
    </div>
  );
}

function Stale({ row, nowS }: IProps): JSX.Element {
  return (
    <div className="llmops-clusters-stale" role="status">
      {row.checked_s === null
        ? row.stale
        : trans.__(
            'As of %1 ago: %2',
            fmt.duration(Math.round(nowS - row.checked_s)),
            row.stale
          )}
      {row.remedy && <div>{trans.__('Try: %1', row.remedy)}</div>}
    </div>
  );
}

/** From when on the end of a cluster is worth a line with a button. */
const SOON_S = 15 * 60;

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
