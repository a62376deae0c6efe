import { Signal } from '@lumino/signaling';
import * as React from 'react';
import { act } from 'react';
import { createRoot } from 'react-dom/client';
import { afterEach, describe, expect, it, vi } from 'vitest';

import { RunTableAnswer, RunTableColumn } from '../../wire';
import { Grid } from '../grid';
import { ITableSource, RunTableModel } from '../model';
import { EMPTY } from '../state';

const RUN = {
  run_id: 'r-1',
  label: 'lr 1e-4',
  config: 'menu',
  state: 'SUCCEEDED' as const,
  has_ended: true,
  starred: false,
  tags: [],
  colour: '',
  tone: null,
  cells: ['1e-4', '0.5']
};
const GROUP = { key: 'g', text: 'r 8', count: 1, is_closed: false };
const COLUMNS = ['lr', 'loss'].map(name => ({
  name,
  label: name,
  config: '',
  source: 'figure',
  type: 'number',
  better: 'lower',
  differs: false
})) as unknown as RunTableColumn[];

function sourceOf(isGrouped: boolean): ITableSource {
  const line = { group: null, run: RUN };
  const lines = isGrouped ? [{ group: GROUP, run: null }, line] : [line];
  return {
    table: async () =>
      ({
        version: 1,
        total: 1,
        matched: 1,
        num_lines: lines.length,
        first: 0,
        lines,
        columns: COLUMNS,
        reading: false
      }) as unknown as RunTableAnswer,
    rays: async () => ({ axes: [], rays: [], left_out: 0 }),
    ids: async () => ({ run_ids: [] }),
    columns: async () => COLUMNS,
    changed: new Signal<unknown, unknown>({})
  };
}

async function drawn(group = '') {
  const host = document.createElement('div');
  document.body.append(host);
  const model = new RunTableModel(sourceOf(group !== ''), { ...EMPTY, group });
  await model.refresh();
  const open = vi.fn();
  await act(async () =>
    createRoot(host).render(
      <Grid model={model} open={open} menu={() => undefined} />
    )
  );
  return { host, model, open };
}

function press(key: string): void {
  document.activeElement?.dispatchEvent(
    new KeyboardEvent('keydown', { key, bubbles: true })
  );
}

describe('the table', () => {
  afterEach(() => document.body.replaceChildren());

  it('has one place for Tab in its heads, and the arrow keys move there', async () => {
    const { host, model, open } = await drawn();
    const heads = [
      ...host.querySelectorAll<HTMLButtonElement>('[role=columnheader] button')
    ];
    const places = () => heads.map(head => head.tabIndex);
    expect(places()).toEqual([0, -1]);
    await act(async () => heads[0].focus());
    await act(async () => press('ArrowRight'));
    expect(document.activeElement).toBe(heads[1]);
    expect(places()).toEqual([-1, 0]);
    // A browser makes a click of Enter on a button; the table must not open a run besides.
    await act(async () => press('Enter'));
    expect(open).not.toHaveBeenCalled();
    heads[1].click();
    expect(model.state.sort).toBe('loss');
  });

  it('is a tree only where it is grouped: its groups can be opened', async () => {
    const flat = await drawn();
    expect(flat.host.querySelector('[role=grid]')).not.toBeNull();
    expect(flat.host.querySelector('[aria-expanded]')).toBeNull();
    const grouped = await drawn('method.r');
    const tree = grouped.host.querySelector('[role=treegrid]');
    const rows = [...(tree?.querySelectorAll('[aria-level]') ?? [])];
    expect(rows.map(row => row.getAttribute('aria-level'))).toEqual(['1', '2']);
    expect(rows.map(row => row.getAttribute('aria-expanded'))).toEqual([
      'true',
      null
    ]);
  });
});
