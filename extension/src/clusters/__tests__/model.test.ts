import { DisposableDelegate } from '@lumino/disposable';
import { describe, expect, it, vi } from 'vitest';

import { ILive, LiveMessage, Json } from '../../tokens';
import { ClusterInfo, ClusterRow, OperationInfo } from '../../wire';
import { attachCode, ClusterModel, failures, whyNot } from '../model';
import { engineTexts, warmLine } from '../details';
import { times, used } from '../row';

function info(values: Partial<ClusterInfo> = {}): ClusterInfo {
  return {
    name: 'lab',
    provider: 'local',
    state: 'ready',
    message: '',
    remedy: '',
    dashboard_url: null,
    runs_url: null,
    ray_address: null,
    created_s: 1000,
    num_nodes: 1,
    num_cpus: 2,
    num_gpus: 0,
    cpus_used: 0.5,
    gpus_used: null,
    jobs_running: 0,
    jobs_total: 0,
    idle_s: null,
    actions: { suspend: '', resume: 'It is running' },
    ray_version: null,
    context: null,
    namespace: null,
    queue: null,
    image: null,
    workers_ready: null,
    workers_wanted: null,
    groups: [],
    most_resources: null,
    waiting: [],
    suspends_at_s: null,
    ends_at_s: null,
    kept_until_s: null,
    is_adopted: false,
    warm: 'warm',
    warm_modules: 10,
    warm_missing: [],
    warm_forked: 3,
    warm_cold_starts: 0,
    warm_cold_reason: '',
    warm_kept: [],
    engines: null,
    head_runs: false,
    running: null,
    created_by: '',
    chosen: '',
    log_tail: '',
    ...values
  };
}

function row(values: Partial<ClusterRow> = {}): ClusterRow {
  return {
    name: 'lab',
    provider: 'local',
    info: info(),
    stale: '',
    remedy: '',
    checked_s: 1000,
    idle_since_s: null,
    operation_id: null,
    doing: '',
    progress: '',
    ...values
  };
}

function operation(values: Partial<OperationInfo>): OperationInfo {
  return {
    id: '1',
    kind: 'up',
    what: 'lab',
    state: 'failed',
    lines: [],
    started_s: 1,
    ended_s: 2,
    result: {},
    trouble: null,
    ...values
  };
}

function fakeLive() {
  let tell: (message: LiveMessage) => void = () => undefined;
  const disposed = vi.fn();
  const live = {
    subscribe: (topic: string, listener: typeof tell) => {
      expect(topic).toBe('clusters');
      tell = listener;
      return new DisposableDelegate(disposed);
    }
  } as unknown as ILive;
  const send = (kind: string, data: Json) =>
    tell({ kind, data, payload: null });
  return { live, send, disposed };
}

describe('ClusterModel', () => {
  it('knows nothing before the first list, and keeps the last one in trouble', () => {
    const { live, send, disposed } = fakeLive();
    const model = new ClusterModel(live);
    const changed = vi.fn();
    model.changed.connect(changed);
    expect(model.isKnown).toBe(false);

    send('trouble', { message: 'no answer', remedy: 'wait', problems: [] });
    expect(model.isKnown).toBe(false);
    expect(model.trouble?.remedy).toBe('wait');

    const now_s = Date.now() / 1000 + 60;
    send('clusters', { clusters: [row()], now_s });
    send('fine', {});
    expect(model.isKnown).toBe(true);
    expect(model.trouble).toBeNull();
    expect(model.find('lab')?.info?.state).toBe('ready');
    expect(model.find('other')).toBeUndefined();
    expect(model.aheadS).toBeCloseTo(60, 0);

    send('trouble', { message: 'no answer', remedy: '', problems: [] });
    expect(model.clusters).toHaveLength(1);
    send('something new', {});
    expect(changed).toHaveBeenCalledTimes(4);
    model.dispose();
    expect(disposed).toHaveBeenCalledOnce();
  });
});

describe('what can be done', () => {
  it.each([
    [row(), 'suspend', ''],
    [row(), 'resume', 'It is running'],
    [row(), 'explode', 'Its provider does not support this'],
    [row({ doing: 'scale' }), 'suspend', 'It is busy: scale is in progress'],
    [row({ info: null }), 'suspend', 'Its state is not known yet'],
    [undefined, 'suspend', 'Its state is not known yet']
  ])('%#', (cluster, action, reason) => {
    expect(whyNot(cluster, action)).toBe(reason);
  });
});

describe('failures', () => {
  it('tells the newest end of each cluster, until it is closed or has gone well', () => {
    const all = [
      operation({ id: '5', what: 'a', state: 'failed' }),
      operation({ id: '4', what: 'b', state: 'done' }),
      operation({ id: '3', what: 'b', state: 'failed' }),
      operation({ id: '2', what: 'a', state: 'failed' }),
      operation({ id: '1', kind: 'submit', what: 'c', state: 'failed' })
    ];
    expect(failures(all, new Set(), []).map(one => one.id)).toEqual(['5']);
    expect(failures(all, new Set(['5']), [])).toEqual([]);
    const since = row({ name: 'a', info: info({ created_s: 3 }) });
    const before = row({ name: 'a', info: info({ created_s: 1 }) });
    expect(failures(all, new Set(), [since])).toEqual([]);
    expect(failures(all, new Set(), [before])).toHaveLength(1);
  });
});

describe('what is shown', () => {
  it('writes code that works in a fresh notebook', () => {
    expect(attachCode('lab')).toBe(
      'import llmops_kernel as llmops\n\ncluster = llmops.cluster("lab")\ncluster'
    );
  });

  it('counts from the server clock; unknown is a dash', () => {
    expect(times(row({ idle_since_s: 1120 }), 1180)).toBe(
      'up 3 min · idle 60 s'
    );
    const busy = row({ info: info({ jobs_running: 1 }) });
    expect(times(busy, 1180)).toBe('up 3 min · active');
    expect(times(row({ info: info({ state: 'stopped' }) }), 1)).toBe('');
    expect(used(0.5, 2)).toBe('0.5/2');
    expect(used(null, 2)).toBe('–/2');
    expect(used(null, null)).toBe('–/–');
  });

  it('says what is loaded and when it leaves', () => {
    const engine = {
      name: 'engine-1-0',
      replica: 0,
      node_id: 'n',
      model: '/models/SmolLM2-135M',
      engine: 'vllm',
      state: 'idle' as const,
      num_gpus: 1,
      gpu_ids: ['0'],
      run: 'tags-1',
      idle_since_s: 100,
      leaves_at_s: 220
    };
    expect(engineTexts(engine, 160)).toEqual({
      model: 'SmolLM2-135M',
      state: 'vllm, idle for 60 s, unloads in 60 s, GPU 0',
      run: 'last used by tags-1'
    });
    const hub = { ...engine, model: 'organisation/model', idle_since_s: null };
    expect(engineTexts(hub, 160)).toMatchObject({
      model: 'model',
      run: 'used by tags-1'
    });
    const silent = { ...engine, model: '', engine: '', state: '' as const };
    const unknown = { idle_since_s: null, leaves_at_s: null, gpu_ids: [] };
    expect(engineTexts({ ...silent, ...unknown, run: '' }, 160)).toEqual({
      model: '–',
      state: '–',
      run: ''
    });
  });

  it('says how processes start', () => {
    expect(warmLine(info())).toBe(
      'warm, 10 modules loaded, 3 processes forked'
    );
    const cold = info({
      warm: 'cold: no fork server',
      warm_modules: null,
      warm_forked: null,
      warm_cold_starts: 2,
      warm_cold_reason: 'no answer'
    });
    const kept = {
      model: 'SmolLM2-135M-Instruct',
      dtype: 'float32',
      num_bytes: 538_060_800,
      used_s: 1
    };
    expect(warmLine(info({ warm_kept: [kept] }))).toBe(
      'warm, 10 modules loaded, 3 processes forked,' +
        ' keeps SmolLM2-135M-Instruct (float32, 513 MiB)'
    );
    expect(warmLine(cold)).toBe(
      'cold: no fork server, 2 cold starts, the last: no answer'
    );
  });
});
