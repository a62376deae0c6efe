import * as React from 'react';

import { pages } from '../dashboard/pages';
import { trans } from '../trans';
import * as fmt from '../ui/format';
import { Ellipsed } from '../ui/parts';
import { ClusterInfo, EngineInfo, GroupInfo } from '../wire';

/**
 * All that is known of a cluster, and the pages of its Ray Dashboard.
 */
export function Details(props: {
  info: ClusterInfo;
  openPage: (page: string) => void;
}): JSX.Element {
  const { info } = props;
  const facts = [
    [trans.__('provider'), info.provider],
    ['Ray', info.ray_version],
    ...place(info),
    [trans.__('address'), info.ray_address],
    [
      trans.__('host memory'),
      info.memory_bytes === null
        ? ''
        : trans.__(
            '%1 of %2 used',
            fmt.bytes(info.memory_used_bytes),
            fmt.bytes(info.memory_bytes)
          )
    ],
    ...(info.running?.length
      ? [[trans.__('running'), info.running.join('; ')]]
      : []),
    [trans.__('jobs so far'), fmt.count(info.jobs_total)],
    [trans.__('fork server'), warmLine(info)],
    [trans.__('dashboard'), info.dashboard_url],
    ...(info.runs_url ? [[trans.__('runs in Grafana'), info.runs_url]] : [])
  ];
  return (
    <>
      <dl className="llmops-clusters-facts">
        {facts.map(([name, value]) => (
          <React.Fragment key={name}>
            <dt>{name}</dt>
            <dd>{value || fmt.DASH}</dd>
          </React.Fragment>
        ))}
        <Engines engines={info.engines ?? []} />
      </dl>
      {info.groups.length > 0 && <Groups groups={info.groups} />}
      {info.state === 'ready' && <Pages {...props} />}
      {info.log_tail && (
        <pre
          className="llmops-clusters-log"
          role="region"
          aria-label={trans.__('End of the log of %1', info.name)}
          tabIndex={0}
        >
          {info.log_tail}
        </pre>
      )}
    </>
  );
}

/** Where on Kubernetes it is; nothing of it for a local cluster. */
function place(info: ClusterInfo): (string | null)[][] {
  if (info.namespace === null) {
    return [];
  }
  return [
    [trans.__('context'), info.context],
    [trans.__('namespace'), info.namespace],
    [trans.__('queue'), info.queue],
    [trans.__('image'), info.image],
    [
      trans.__('created by'),
      info.is_adopted
        ? trans.__('others (kubectl, CI)')
        : info.created_by || 'llmops'
    ],
    ...(info.chosen ? [[trans.__('chosen because'), info.chosen]] : [])
  ];
}

function Groups(props: { groups: readonly GroupInfo[] }): JSX.Element {
  const { groups } = props;
  return (
    <table className="llmops-clusters-groups">
      <thead>
        <tr>
          <th scope="col">{trans.__('workers')}</th>
          <th scope="col">{trans.__('ready')}</th>
          <th scope="col">{trans.__('wanted')}</th>
          <th scope="col">{trans.__('bounds')}</th>
        </tr>
      </thead>
      <tbody>
        {groups.map(group => (
          <tr key={group.name}>
            <td>{group.name}</td>
            <td>{fmt.count(group.ready)}</td>
            <td>{fmt.count(group.pods)}</td>
            <td>{bounds(group)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** How many replicas there may be, and of how many pods each is where that is not one. */
function bounds(group: GroupInfo): string {
  const text = `${fmt.count(group.min_replicas)}–${fmt.count(group.max_replicas)}`;
  return group.hosts > 1
    ? trans.__('%1 × %2 pods', text, fmt.count(group.hosts))
    : text;
}

function Pages(props: {
  info: ClusterInfo;
  openPage: (page: string) => void;
}): JSX.Element {
  const { info, openPage } = props;
  return (
    <ul
      className="llmops-clusters-pages"
      aria-label={trans.__('Pages of the Ray Dashboard of %1', info.name)}
    >
      {pages().map(({ name, label }) => (
        <li key={name}>
          <button
            type="button"
            title={trans.__('Open this page of the Ray Dashboard in a tab')}
            onClick={() => openPage(name)}
          >
            {label}
          </button>
        </li>
      ))}
    </ul>
  );
}

/** What is loaded for score runs and chats; nothing where there is none. */
function Engines(props: { engines: readonly EngineInfo[] }): JSX.Element {
  const { engines } = props;
  return (
    <>
      {engines.map(engine => {
        const { model, state, run } = engineTexts(engine, Date.now() / 1000);
        return (
          <React.Fragment key={engine.name}>
            <dt>{trans.__('engine')}</dt>
            <dd className="llmops-clusters-engine">
              <Ellipsed text={model} title={engine.model || model} />
              {state}
              {run && <Ellipsed text={run} />}
            </dd>
          </React.Fragment>
        );
      })}
    </>
  );
}

/**
 * @returns the name without folder or organisation, `vllm, idle for 12 s, unloads in 8 s, GPU 0`,
 * and `last used by tags-1`
 */
export function engineTexts(
  engine: EngineInfo,
  now: number
): { model: string; state: string; run: string } {
  const { idle_since_s: idle, leaves_at_s: leaves, run } = engine;
  const parts = [
    engine.engine,
    idle === null
      ? engine.state || fmt.DASH
      : trans.__('idle for %1', fmt.duration(Math.max(0, now - idle))),
    leaves !== null &&
      trans.__('unloads in %1', fmt.duration(Math.max(0, leaves - now))),
    engine.gpu_ids.length > 0 && `GPU ${engine.gpu_ids.join(' ')}`
  ];
  const user =
    idle === null
      ? trans.__('used by %1', run)
      : trans.__('last used by %1', run);
  return {
    model: engine.model.split('/').filter(Boolean).pop() ?? fmt.DASH,
    state: parts.filter(Boolean).join(', '),
    run: run && user
  };
}

/** `warm, 1204 modules loaded, 3 processes forked`. */
export function warmLine(info: ClusterInfo): string {
  const parts = [info.warm];
  if (info.warm_modules !== null) {
    parts.push(trans.__('%1 modules loaded', info.warm_modules));
  }
  if (info.warm_forked !== null) {
    parts.push(trans.__('%1 processes forked', info.warm_forked));
  }
  if (info.warm_missing.length > 0) {
    parts.push(trans.__('could not load %1', info.warm_missing.join(', ')));
  }
  for (const kept of info.warm_kept) {
    parts.push(
      trans.__(
        'keeps %1 (%2, %3)',
        kept.model,
        kept.dtype,
        fmt.bytes(kept.num_bytes)
      )
    );
  }
  if (info.warm_cold_starts) {
    parts.push(
      trans.__(
        '%1 cold starts, the last: %2',
        info.warm_cold_starts,
        info.warm_cold_reason
      )
    );
  }
  return parts.filter(Boolean).join(', ');
}
