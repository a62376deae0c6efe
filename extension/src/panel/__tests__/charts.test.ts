import { beforeAll, describe, expect, it, vi } from 'vitest';

import { RunColumn } from '../../wire';
import { Charts } from '../charts';
import { IChartStore } from '../chartTools';
import { IChartChoice, chartChoice } from '../numbers';
import { RunData } from '../runData';
import { drawnOf } from '../tabs';

/** jsdom has no canvas: this one takes every call and draws nothing. */
function blank(): unknown {
  const known: Record<string, unknown> = { measureText: () => ({ width: 8 }) };
  return new Proxy(known, {
    get: (target, name: string) => target[name] ?? (() => undefined),
    set: () => true
  });
}

beforeAll(() => {
  Object.assign(globalThis, {
    Path2D: class {
      constructor() {
        return blank() as object;
      }
    }
  });
  HTMLCanvasElement.prototype.getContext = blank as never;
});

const COLUMNS: RunColumn[] = [
  { name: 'step', label: 'step', unit: 'count' },
  { name: 'loss', label: 'loss', unit: 'loss' },
  { name: 'mfu', label: 'MFU', unit: 'fraction' },
  { name: 'lr', label: 'learning rate', unit: 'number' },
  { name: 'tokens', label: 'tokens', unit: 'count' }
];
const STATE = {
  run_id: 'r-1',
  curve: 'loss',
  columns: COLUMNS,
  evals: [
    [0, 4],
    [2, 2.5]
  ] as [number, number][],
  eval_curves: [
    { name: 'f1', label: 'f1', points: [[2, 0.5]] as [number, number][] }
  ],
  restart_steps: [1]
};

function runData(): RunData {
  const data = new RunData();
  data.describe(COLUMNS);
  const rows = [1, 3, 0.4, 2e-4, 10, 2, 2, 0.5, 1e-4, 10, 3, -1, 0.5, 0, 10];
  data.write(0, new Float32Array(rows).buffer);
  return data;
}

function drawn(choice: Partial<IChartChoice> = {}) {
  let stored: object = choice;
  const store: IChartStore = {
    read: () => stored,
    keep: value => (stored = value)
  };
  const charts = new Charts(runData(), store);
  document.body.append(charts.element);
  charts.draw(STATE);
  return { charts, element: charts.element };
}

const legends = (element: HTMLElement) =>
  [...element.querySelectorAll('.llmops-card:not([hidden])')].map(card =>
    [...card.querySelectorAll('.u-label')].map(label => label.textContent)
  );
const label = (element: HTMLElement, text: string) =>
  [...element.querySelectorAll('label')]
    .find(({ textContent }) => textContent?.includes(text))!
    .querySelector('input')!;

describe('the charts of a run', () => {
  it('show the curve with its evaluations, and the first tab', () => {
    const { element } = drawn();
    expect(legends(element)).toEqual([
      ['step', 'loss', 'eval loss'],
      ['step', 'MFU']
    ]);
    const tabs = [...element.querySelectorAll('[role=tab]')];
    expect(tabs.map(tab => tab.textContent)).toEqual(['MFU', 'Learning rate']);
    expect(element.textContent).toContain('Restarted after step 1');
  });

  it('are smoothed, logarithmic and over tokens when a user says so', () => {
    const { element } = drawn({ x: 'tokens', smoothing: 0.5, log: true });
    expect(legends(element)[0]).toEqual([
      'tokens',
      'loss',
      'loss, smoothed',
      'eval loss'
    ]);
    expect(element.textContent).toContain('1 values of zero or less');
  });

  it('are added and removed', () => {
    const { element } = drawn();
    label(element, 'Eval f1').click();
    label(element, 'Learning rate').click();
    expect(legends(element).slice(2)).toEqual([
      ['step', 'f1'],
      ['step', 'learning rate']
    ]);
    label(element, 'Eval f1').click();
    expect(legends(element).slice(2)).toEqual([['step', 'learning rate']]);
  });

  it('zoom together by keys, and show all again', () => {
    const { element } = drawn();
    const all = [...element.querySelectorAll('button')].find(
      ({ textContent }) => textContent === 'Show all'
    )!;
    const press = (key: string) =>
      element
        .querySelector('.llmops-plot')!
        .dispatchEvent(new KeyboardEvent('keydown', { key }));
    expect(all.disabled).toBe(true);
    press('+');
    expect(all.disabled).toBe(false);
    press('ArrowRight');
    all.click();
    expect(all.disabled).toBe(true);
  });

  it('are made anew for a new theme', () => {
    const { charts, element } = drawn();
    charts.redraw();
    expect(legends(element)[0]).toEqual(['step', 'loss', 'eval loss']);
    charts.dispose();
    expect(element.querySelector('.uplot')).toBeNull();
  });

  it('have evaluations at their own steps, before the first row too', () => {
    const data = runData();
    const steps = data.x;
    const frame = {
      x: { key: 'step', label: 'step', values: data.x },
      steps,
      choice: chartChoice(null)
    };
    const tab = {
      key: 'curve',
      title: 'Loss',
      scale: 1,
      unit: '',
      series: [COLUMNS[1]],
      points: STATE.evals,
      pointsLabel: 'eval loss'
    };
    const [x, loss, evals] = drawnOf(tab, data, frame).data;
    expect([...x!]).toEqual([0, 1, 2, 3]);
    expect(Array.from(loss!, value => value ?? null)).toEqual([null, 3, 2, -1]);
    expect(Array.from(evals!, value => value ?? null)).toEqual([
      4,
      null,
      2.5,
      null
    ]);
  });

  it('save what is drawn as a table', async () => {
    const saved = vi.fn<(blob: Blob) => string>(() => 'blob:x');
    Object.assign(URL, { createObjectURL: saved, revokeObjectURL: vi.fn() });
    const { element } = drawn();
    [...element.querySelectorAll('button')]
      .find(({ textContent }) => textContent === 'CSV')!
      .click();
    expect(saved.mock.calls[0][0].size).toBeGreaterThan(40);
  });
});
