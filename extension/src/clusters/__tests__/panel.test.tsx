import { CommandRegistry } from '@lumino/commands';
import { MessageLoop } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import { afterEach, expect, it, vi } from 'vitest';

import { IClusterModel, IOperations } from '../../tokens';
import { ClusterInfo, ClusterRow } from '../../wire';
import { ClusterPanel } from '../panel';

afterEach(() => document.body.replaceChildren());

const NAMES = ['a', 'b', 'c'];

function row(name: string, info: Partial<ClusterInfo>): ClusterRow {
  const empty = {
    name,
    provider: 'local',
    state: 'ready',
    message: '',
    remedy: '',
    actions: {},
    groups: [],
    waiting: [],
    warm: '',
    warm_missing: [],
    warm_kept: [],
    workers_wanted: null
  };
  return {
    name,
    provider: 'local',
    info: { ...empty, ...info } as unknown as ClusterInfo,
    stale: '',
    remedy: '',
    checked_s: null,
    idle_since_s: null,
    operation_id: null,
    doing: '',
    progress: ''
  };
}

async function shown(clusters: ClusterRow[]): Promise<HTMLElement> {
  const model = { clusters, isKnown: true, aheadS: 0, trouble: null };
  const operations = { all: [] };
  const panel = new ClusterPanel({
    model: { ...model, changed: new Signal(model) } as unknown as IClusterModel,
    operations: {
      ...operations,
      changed: new Signal(operations)
    } as unknown as IOperations,
    commands: new CommandRegistry()
  });
  Widget.attach(panel, document.body);
  MessageLoop.flush();
  await vi.waitFor(() =>
    expect(panel.node.querySelectorAll('.llmops-clusters-row').length).toBe(
      clusters.length
    )
  );
  return panel.node;
}

it('has one place for Tab in the list, with its buttons, and arrow keys move it', async () => {
  const node = await shown(NAMES.map(name => row(name, {})));
  const list = node.querySelector('ul')!;
  const stops = () =>
    [...list.querySelectorAll('button')]
      .filter(({ tabIndex }) => tabIndex === 0)
      .map(
        button =>
          button.closest<HTMLElement>('.llmops-clusters-row')?.dataset.cluster
      );
  const atFirst = stops();
  expect(new Set(atFirst)).toEqual(new Set(['a']));
  expect(atFirst.length).toBeGreaterThan(2);
  const press = (key: string) =>
    document.activeElement?.dispatchEvent(
      new KeyboardEvent('keydown', { key, bubbles: true })
    );
  list.querySelector<HTMLElement>('.llmops-clusters-open')?.focus();
  press('ArrowDown');
  expect(new Set(stops())).toEqual(new Set(['b']));
  press('End');
  expect(new Set(stops())).toEqual(new Set(['c']));
});
