import uPlot from 'uplot';
import { describe, expect, it } from 'vitest';

import { RunData } from '../../panel/runData';
import { PanelState, RunRow } from '../../wire';
import { chooseRuns, runIdsOf } from '../choose';
import { attachCode, meant } from '../commands';
import { isSparse } from '../../panel/plot';
import {
  COLORS,
  comparedColumns,
  comparedEvals,
  comparedMarks,
  drawnAs,
  IDrawnRun,
  overlaid,
  overlaidEvals
} from '../compare/curves';
import { axisLabel, groupOf } from '../compare/curvesView';
import { shortNames, shownNames } from '../compare/names';
import { compareId } from '../compare/view';
import { usual } from '../configView';
import { signOf } from '../difference';
import { COLUMNS, packed } from './fakes';

function rowsOf(values: [number, number][]): RunData {
  const rows = new RunData();
  rows.describe(COLUMNS);
  rows.write(0, packed(values));
  return rows;
}

/** A run with steps and what its panel knows besides. */
function drawnRun(
  values: [number, number][],
  panel: Partial<PanelState>
): IDrawnRun {
  const known = { evals: null, eval_curves: [], restart_steps: [] };
  const whole = {
    ...known,
    nan_since: null,
    ...panel
  } as unknown as PanelState;
  return { rows: rowsOf(values), panel: whole };
}

describe('evaluations over each other', () => {
  const curve = (points: [number, number][]) => [
    { name: 'eval_f1', label: 'f1', points }
  ];
  const runs = [
    drawnRun(
      [
        [1, 3],
        [2, 2]
      ],
      { evals: [[2, 0.5]], eval_curves: curve([[2, 0.8]]) }
    ),
    drawnRun([[1, 3]], { eval_curves: curve([[4, 0.9]]) }),
    { rows: rowsOf([]), panel: null }
  ];

  it('have a chart a metric, the loss first', () => {
    expect(comparedEvals(runs)).toEqual([
      { name: '', label: 'loss' },
      { name: 'eval_f1', label: 'f1' }
    ]);
    expect(overlaidEvals(runs, '')).toEqual([[2], [0.5], [null], [null]]);
    expect(overlaidEvals(runs, 'eval_f1')).toEqual([
      [2, 4],
      [0.8, null],
      [null, 0.9],
      [null, null]
    ]);
  });

  it('leave out what a log scale or an unknown axis cannot show', () => {
    const choice = { x: 'step', smoothing: 0, log: true };
    const below = [drawnRun([[1, 3]], { evals: [[1, -1]] })];
    expect(overlaidEvals(below, '', choice)).toEqual([[1], [null]]);
    expect(overlaidEvals(runs, '', { ...choice, x: 'tokens' })[0]).toEqual([]);
  });

  it('mark restarts and NaN in the colour of the run', () => {
    const marked = [
      runs[1],
      drawnRun([[1, 3]], { restart_steps: [1], nan_since: 3 })
    ];
    expect(
      comparedMarks(marked, 'step').map(({ run, step, bad }) => [
        run,
        step,
        bad
      ])
    ).toEqual([
      [1, 1, false],
      [1, 3, true]
    ]);
    const [{ color }] = comparedMarks(marked, 'step');
    expect(color).toBe(COLORS[1]);
  });
});

it('an axis is called by its words, never by its key', () => {
  expect(axisLabel('time', 'step')).toBe('hours since the first step');
  expect(axisLabel('step', 'row')).toBe('row');
  expect(axisLabel('step', undefined)).toBe('step');
});

describe('overlaid', () => {
  it('lays runs over the union of their steps', () => {
    const first = rowsOf([
      [1, 3],
      [2, 2],
      [5, 1]
    ]);
    const second = rowsOf([
      [2, 20],
      [3, 30]
    ]);
    expect(overlaid([first, second], 'reward')).toEqual([
      [1, 2, 3, 5],
      [3, 2, null, 1],
      [null, 20, 30, null]
    ]);
    expect(overlaid([], 'reward')).toEqual([[]]);
  });

  it('smooths each run by itself, behind the raw lines', () => {
    const runs = [
      rowsOf([
        [1, 4],
        [2, 2]
      ]),
      rowsOf([[2, -8]])
    ];
    const choice = { x: 'step', smoothing: 0.5, log: false };
    const [x, first, second, curve, other] = overlaid(
      runs,
      'reward',
      1,
      choice
    );
    expect([x, first, second]).toEqual([
      [1, 2],
      [4, 2],
      [null, -8]
    ]);
    expect(curve[0]).toBeCloseTo(4);
    expect(curve[1]).toBeCloseTo((0.25 * 4 + 0.5 * 2) / 0.75);
    expect(other).toEqual([null, -8]);
    const log = overlaid(runs, 'reward', 1, { ...choice, log: true });
    expect(log[4]).toEqual([null, null]);
  });

  it('has no line for a run that does not know the x axis', () => {
    const runs = [rowsOf([[1, 4]])];
    const choice = { x: 'tokens', smoothing: 0, log: false };
    expect(overlaid(runs, 'reward', 1, choice)).toEqual([[], []]);
  });

  it('is quick for 100,000 steps each', () => {
    const values = Array.from({ length: 100_000 }, (_, i): [number, number] => [
      i + 1,
      1
    ]);
    const runs = [rowsOf(values.slice(0, 50_000)), rowsOf(values.slice(1))];
    const begun = performance.now();
    expect(overlaid(runs, 'reward')[0]).toHaveLength(100_000);
    expect(performance.now() - begun).toBeLessThan(1000);
  });
});

it('draws the points of a run that has too few for a line', () => {
  const data: uPlot.AlignedData = [
    [1, 2, 3],
    [0.4, null, null],
    [1, null, 3],
    [1, 2, 3]
  ];
  expect(isSparse({ data }, 1)).toBe(true);
  expect(isSparse({ data }, 2)).toBe(true);
  expect(isSparse({ data }, 3)).toBe(false);
});

describe('the compared columns', () => {
  it('are those of any kind that have numbers', () => {
    const other = new RunData();
    const columns = [COLUMNS[0], { name: 'loss', label: 'loss', unit: 'loss' }];
    other.describe(columns as typeof COLUMNS);
    other.write(0, new Float32Array([1, 2]).buffer);
    const rows = [rowsOf([[1, 3]]), other, new RunData()];
    expect(comparedColumns(rows).map(({ name }) => name)).toEqual([
      'reward',
      'loss'
    ]);
  });

  it('are drawn by their unit', () => {
    expect(drawnAs('fraction')).toEqual({ scale: 100, suffix: ' %' });
    expect(drawnAs('number')).toEqual({ scale: 1, suffix: '' });
  });
});

describe('which runs', () => {
  const row = (run_id: string, created_s: number, more = {}) =>
    ({ run_id, created_s, name: 'lora', parent: null, ...more }) as RunRow;

  it('are taken from the arguments once each, eight at most', () => {
    expect(runIdsOf({ runIds: ['a', 'b', 'a', 3] })).toEqual(['a', 'b']);
    expect(runIdsOf({})).toEqual([]);
    expect(chooseRuns).toBeTypeOf('function');
  });

  it('make one tab in whatever order', () => {
    expect(compareId(['b', 'a'])).toBe(compareId(['a', 'b']));
  });

  it('are compared with the run they came from, else with the one before', () => {
    const before = row('r-1', 1);
    const parent = row('r-0', 0, { name: 'other' });
    expect(usual(row('r-2', 2), [before, parent])).toBe('r-1');
    expect(usual(row('r-2', 2, { parent: 'r-0' }), [before, parent])).toBe(
      'r-0'
    );
    expect(usual(row('r-2', 2, { name: 'new' }), [before, parent])).toBe('');
  });

  it('is the one of the arguments, the shown or the only selected one', () => {
    const runs = { selected: new Set(['s']) } as never;
    expect(meant({ runs, shown: () => 'x' }, { runId: 'a' })).toBe('a');
    expect(meant({ runs, shown: () => 'x' }, {})).toBe('x');
    expect(meant({ runs, shown: () => null }, {})).toBe('s');
    expect(
      meant({ runs: { selected: new Set() } as never, shown: () => null }, {})
    ).toBeNull();
  });
});

describe('texts', () => {
  it('separate curves of the model from those of speed', () => {
    const units = ['loss', 'number', 'exponent', 'fraction', 'bytes'] as const;
    const groups = units.map(unit => groupOf({ name: '', label: '', unit }));
    expect(groups).toEqual(['result', 'result', 'result', 'speed', 'speed']);
  });

  it('know the signs of a unified diff', () => {
    const lines = ['+++ b', '--- a', '@@ -1 +1 @@', '+x', '-y', ' z', ''];
    expect(lines.map(signOf)).toEqual([
      undefined,
      undefined,
      '@',
      '+',
      '-',
      undefined,
      undefined
    ]);
  });

  it('attach to a run', () => {
    expect(attachCode('r-1')).toContain('llmops.attach("r-1")');
  });
});

describe('names of compared runs', () => {
  const shown = (...runs: [string, string?][]) =>
    shownNames(runs.map(([run_id, title = '']) => ({ run_id, title })));

  it('differ where the runs do', () => {
    const names = shown(
      ['lora-r-64-260901-1015-1a1b'],
      ['lora-r-64-260901-1015-1a2b']
    );
    expect(shortNames(names)).toEqual(['…1a1b', '…1a2b']);
    expect(names[0].text).toBe('lora-r-64-260901-1015-1a1b');
  });

  it('are whole where they are short', () => {
    const names = shown(['r-1', 'lr 5e-4'], ['r-2', 'lr 1e-4']);
    expect(shortNames(names)).toEqual(['lr 5e-4', 'lr 1e-4']);
  });

  it('lack in a legend what all have, not what tells them apart', () => {
    const names = shown(
      ['r-1', 'lr 1e-4 · r 4 · seed 42'],
      ['r-2', 'lr 3e-4 · r 4 · seed 42'],
      ['r-3', 'lr 3e-4 · r 8 · seed 42']
    );
    expect(shortNames(names)).toEqual([
      'lr 1e-4 · r 4',
      'lr 3e-4 · r 4',
      'lr 3e-4 · r 8'
    ]);
  });

  it('are never cut to an end that two of them have', () => {
    const names = shown(
      ['r-1', 'lr 1e-4 · r 4 · seed 1'],
      ['r-2', 'lr 1e-4 · r 4 · seed 2'],
      ['r-3', 'lr 3e-4 · r 32 · seed 1'],
      ['r-4', 'lr 3e-4 · r 32 · seed 2']
    );
    expect(shortNames(names)).toEqual(names.map(({ text }) => text));
  });

  it('are whole without a common beginning', () => {
    expect(shortNames(shown(['train-1a'], ['config-1a']))).toEqual([
      'train-1a',
      'config-1a'
    ]);
    expect(shortNames(shown(['train-1a']))).toEqual(['train-1a']);
  });

  it('never lack what tells them apart', () => {
    const names = shown(['a-1', 'Same'], ['a-2', 'Same'], ['b-1', 'Other']);
    expect(names.map(({ text }) => text)).toEqual([
      'Same a-1',
      'Same a-2',
      'Other'
    ]);
    expect(shortNames(shown(['run-1'], ['run-1-b']))).toEqual([
      'run-1',
      'run-1-b'
    ]);
  });
});
