import { Signal } from '@lumino/signaling';
import { describe, expect, it, vi } from 'vitest';

import { Columns } from '../../generated/panel';
import { RunModel, RunModels } from '../model';
import { PanelAdapter } from '../panelAdapter';
import { Rows } from '../rows';
import { COLUMNS, FakeLive, packed } from './fakes';

const TOPIC = 'run/r-1';

function rows(live: FakeLive, first: number, ...values: [number, number][]) {
  const data = {
    columns: COLUMNS,
    first,
    generation: 'g-0',
    count: first + values.length
  };
  live.say(TOPIC, 'rows', data, packed(values));
}

describe('Rows', () => {
  it('grows, replaces from a row on, and refuses a gap', () => {
    const found = new Rows();
    for (let step = 1; step <= 1000; step++) {
      expect(found.write(COLUMNS, step - 1, packed([[step, 1 / step]]))).toBe(
        true
      );
    }
    expect(found.count).toBe(1000);
    expect(found.write(COLUMNS, 1001, packed([[9, 9]]))).toBe(false);
    expect(
      found.write(
        COLUMNS,
        2,
        packed([
          [3, 30],
          [4, 40]
        ])
      )
    ).toBe(true);
    expect(found.column('epoch')).toEqual([1, 2, 3, 4]);
    expect(found.column('reward', 2).slice(2)).toEqual([60, 80]);
    expect(found.column('idle')).toEqual([null, null, null, null]);
    expect([found.has('reward'), found.has('idle')]).toEqual([true, false]);
    expect(found.view(3).byteLength).toBe(4 * COLUMNS.length);
    expect(found.x).toEqual([1, 2, 3, 4]);
    expect(found.has('loss')).toBe(false);
    expect(found.column('loss')).toEqual([null, null, null, null]);
  });

  it('starts again when the columns are others', () => {
    const rows = new Rows();
    rows.write(COLUMNS, 0, packed([[1, 3]]));
    const others = COLUMNS.slice(0, 2);
    expect(rows.write(others, 1, new Float32Array([2, 7]).buffer)).toBe(false);
    expect(rows.write(others, 0, new Float32Array([1, 7]).buffer)).toBe(true);
    expect([rows.count, rows.column('reward')]).toEqual([1, [7]]);
  });
});

describe('RunModel', () => {
  it('takes state and rows, and says what it has', () => {
    const live = new FakeLive();
    const model = new RunModel(live, 'r-1');
    expect(model.isKnown).toBe(false);
    live.say(TOPIC, 'state', { panel: {}, row: { title: 't' } });
    rows(live, 0, [1, 3], [2, 2]);
    rows(live, 2, [3, 1]);
    expect(model.isKnown).toBe(true);
    expect(model.rows.column('epoch')).toEqual([1, 2, 3]);
    expect(live.subscriptions[0].have?.()).toEqual({
      generation: 'g-0',
      rows: 3
    });
  });

  it('keeps what it knows while there is trouble', () => {
    const live = new FakeLive();
    const model = new RunModel(live, 'r-1');
    rows(live, 0, [1, 3]);
    live.say(TOPIC, 'trouble', { message: 'away', remedy: '', problems: [] });
    expect(model.trouble?.message).toBe('away');
    expect(model.rows.count).toBe(1);
    live.say(TOPIC, 'fine', {});
    expect(model.trouble).toBeNull();
  });

  it('says so while the server does not answer', () => {
    const live = new FakeLive();
    const model = new RunModel(live, 'r-1');
    rows(live, 0, [1, 3]);
    live.statusChanged.emit(false);
    expect(model.trouble?.remedy).toContain('reconnects');
    expect(model.rows.count).toBe(1);
    live.statusChanged.emit(true);
    expect(model.trouble).toBeNull();
  });

  it('begins again when rows are missing', () => {
    const live = new FakeLive();
    const model = new RunModel(live, 'r-1');
    rows(live, 0, [1, 3]);
    rows(live, 5, [6, 1]);
    expect(live.subscriptions).toHaveLength(1);
    expect(live.subscriptions[0].have?.()).toEqual({ generation: '', rows: 0 });
    rows(live, 0, [1, 3], [2, 2]);
    expect(model.rows.count).toBe(2);
  });

  it('is shared by all tabs and gone with the last', () => {
    const live = new FakeLive();
    const models = new RunModels(live);
    const first = models.take('r-1');
    expect(models.take('r-1')).toBe(first);
    models.giveBack(first);
    expect(live.subscriptions).toHaveLength(1);
    models.giveBack(first);
    expect(live.subscriptions).toHaveLength(0);
    expect(models.take('r-1')).not.toBe(first);
  });
});

describe('PanelAdapter', () => {
  const nothing = { at: '', columns: [], rows: [], history: [] };
  const samples = vi.fn((first: number) =>
    Promise.resolve({ ...nothing, first, total: 100 })
  );

  function panel() {
    const live = new FakeLive();
    const model = new RunModel(live, 'r-1');
    const changed = new Signal<unknown, void>({});
    const charts = { read: () => ({}), keep: () => undefined, changed };
    const adapter = new PanelAdapter(model, charts, samples);
    return { live, model, adapter };
  }

  it('hands on new rows as the kernel would', () => {
    const { live, adapter } = panel();
    const heard = vi.fn();
    adapter.on('msg:custom', heard);
    rows(live, 0, [1, 3]);
    rows(live, 1, [2, 2]);
    const [content, buffers] = heard.mock.calls[1];
    expect(content).toEqual({ kind: 'rows', first: 1 });
    const columns = new Columns();
    columns.describe(COLUMNS);
    columns.write(0, adapter.get('columns'));
    expect([...columns.column('epoch')]).toEqual([1, 2]);
    expect(columns.write(1, buffers[0])).toBe(true);
  });

  it('sends all rows again when the panel asks', () => {
    const { live, adapter } = panel();
    rows(live, 0, [1, 3], [2, 2]);
    const heard = vi.fn();
    adapter.on('msg:custom', heard);
    adapter.send({ kind: 'resync' });
    expect(heard.mock.calls[0][0]).toEqual({ kind: 'rows', first: 0 });
  });

  it('asks the server for samples that are not shown', async () => {
    const { adapter } = panel();
    const heard = vi.fn();
    adapter.on('msg:custom', heard);
    adapter.send({ kind: 'samples', first: 50 });
    await vi.waitFor(() =>
      expect(heard).toHaveBeenCalledWith(
        { kind: 'samples', page: { ...nothing, first: 50, total: 100 } },
        undefined
      )
    );
    samples.mockRejectedValueOnce(new Error('away'));
    adapter.send({ kind: 'samples', first: 100 });
    await vi.waitFor(() =>
      expect(adapter.get('notice')).toMatchObject({ message: 'away' })
    );
  });

  it('leaves stopping to the toolbar of its tab', () => {
    expect(panel().adapter.get('stops_elsewhere')).toBe(true);
  });

  it('is silent once it is disposed of', () => {
    const { live, adapter } = panel();
    const heard = vi.fn();
    adapter.on('msg:custom', heard);
    adapter.dispose();
    rows(live, 0, [1, 3]);
    expect(heard).not.toHaveBeenCalled();
  });
});
