import * as React from 'react';
import { createRoot } from 'react-dom/client';
import { act } from 'react';
import { describe, expect, it, vi } from 'vitest';

import { ILLMOps } from '../../tokens';
import { ScoreComparison, ScoredMetric, ScoredRow } from '../../wire';
import { changeOf, ScoresSection } from '../compare/scores';
import { ScoresModel } from '../compare/scoresModel';
import { changedWords, IPiece } from '../compare/words';

const HOSTILE = '<img src=x onerror="alert(1)">';
const METRIC: ScoredMetric = {
  name: 'exact_match',
  before: 0.5,
  after: 0.4,
  delta: -0.1,
  low: -0.15,
  high: -0.05,
  rows: 200,
  better: 'higher',
  num_better: 5,
  num_worse: 25,
  num_same: 170,
  texts: ['exact_match', '0.5', '0.4', '-0.1', '-0.15 .. -0.05', '5', '25']
};
const COMPARISON: ScoreComparison = {
  before: 'a',
  after: 'b',
  metrics: [METRIC],
  row_metrics: ['exact_match', 'rougeL'],
  metric: 'exact_match',
  counts: [
    { kind: 'all', label: 'in both', rows: 200 },
    { kind: 'worse', label: 'worse', rows: 25 },
    { kind: 'flipped', label: 'flipped', rows: 30 },
    { kind: 'only_after', label: 'only in the second', rows: 0 }
  ],
  errors_before: 0,
  errors_after: 1,
  output_rows: 199,
  identical: 0.5,
  similarity: null,
  sampled: 0
};
const ROW: ScoredRow = {
  key: '17',
  prompt: `Tag ${HOSTILE}`,
  reference: null,
  before: 'thai main dish',
  after: `thai ${HOSTILE} dish`,
  before_error: '',
  after_error: '',
  before_metrics: { exact_match: 1 },
  after_metrics: { exact_match: 0 },
  is_cut: false
};

function server(answer: (path: string) => unknown): ILLMOps {
  const request = vi.fn(async (path: string) => answer(path));
  return { request } as unknown as ILLMOps;
}

function usual(path: string): unknown {
  const asked = new URLSearchParams(path.split('?')[1]);
  return path.startsWith('compare/scores')
    ? COMPARISON
    : {
        kind: asked.get('kind'),
        metric: asked.get('metric') ?? 'exact_match',
        total: 30,
        offset: Number(asked.get('offset')),
        rows: [ROW]
      };
}

const text = (pieces: IPiece[]) =>
  pieces
    .map(({ text, isChanged }) => (isChanged ? `[${text}]` : text))
    .join('');

describe('changedWords', () => {
  it('marks the words that the other text does not have', () => {
    const found = changedWords('italian | main | vegan', 'thai | main | vegan');
    expect(found.map(text)).toEqual([
      '[italian ]| main | vegan',
      '[thai ]| main | vegan'
    ]);
    expect(changedWords('a b c', 'a c d').map(text)).toEqual([
      'a [b ]c',
      'a c [d]'
    ]);
  });

  it('keeps all of both texts', () => {
    const before = '  two\nlines  of text ';
    const after = 'two lines of other text';
    const [ours, theirs] = changedWords(before, after);
    expect(ours.map(piece => piece.text).join('')).toBe(before);
    expect(theirs.map(piece => piece.text).join('')).toBe(after);
    expect(changedWords('', 'new').map(text)).toEqual(['', '[new]']);
  });

  it('does not compare very long texts word by word', () => {
    const long = (word: string) => `${word} `.repeat(5000);
    const begun = performance.now();
    const [ours] = changedWords(long('a'), long('b'));
    expect(ours).toEqual([{ text: long('a'), isChanged: true }]);
    expect(performance.now() - begun).toBeLessThan(2000);
  });
});

describe('changeOf', () => {
  it('is clear only where the interval leaves out zero', () => {
    expect(changeOf(METRIC)).toBe('worse');
    expect(changeOf({ ...METRIC, better: 'lower' })).toBe('better');
    expect(changeOf({ ...METRIC, delta: 0, low: 0, high: 0 })).toBe('same');
    expect(changeOf({ ...METRIC, high: 0.02 })).toBe('unclear');
    expect(changeOf({ ...METRIC, better: null })).toBe('other');
    expect(changeOf({ ...METRIC, low: null })).toBe('unknown');
  });
});

describe('ScoresModel', () => {
  it('begins with flipped rows, and with the first page of another kind', async () => {
    const llmops = server(usual);
    const model = new ScoresModel(llmops, ['a', 'b']);
    await model.refresh();
    expect(model.choice?.kind).toBe('flipped');
    await model.show({ offset: 20 });
    expect(model.page?.offset).toBe(20);
    await model.show({ kind: 'worse', metric: 'rougeL' });
    expect(model.page).toMatchObject({ kind: 'worse', offset: 0 });
    expect(vi.mocked(llmops.request).mock.lastCall?.[0]).toBe(
      'compare/rows?runs=a%2Cb&kind=worse&offset=0&limit=20&metric=rougeL'
    );
  });

  it('shows the answer to the newest question only', async () => {
    let answerFirst: (page: unknown) => void = () => undefined;
    const model = new ScoresModel(
      server(path =>
        path.includes('kind=worse')
          ? new Promise(resolve => (answerFirst = resolve))
          : usual(path)
      ),
      ['a', 'b']
    );
    await model.refresh();
    const slow = model.show({ kind: 'worse' });
    await model.show({ kind: 'all' });
    answerFirst(usual('compare/rows?kind=worse&offset=0'));
    await slow;
    expect(model.page?.kind).toBe('all');
    expect(model.isLoading).toBe(false);
  });

  it('says why outputs cannot be compared', async () => {
    const model = new ScoresModel(
      server(() => {
        throw new Error('b has not finished');
      }),
      ['a', 'b']
    );
    await model.refresh();
    expect(model.trouble?.message).toBe('b has not finished');
    expect(model.page).toBeNull();
  });
});

describe('ScoresSection', () => {
  it('opens a row, marks what differs, and shows markup as text', async () => {
    vi.stubGlobal('IS_REACT_ACT_ENVIRONMENT', true);
    const model = new ScoresModel(server(usual), ['a', 'b']);
    await model.refresh();
    const host = document.createElement('div');
    const root = createRoot(host);
    act(() => root.render(<ScoresSection model={model} />));
    expect(host.textContent).toContain('Rows 1 to 1 of 30');
    expect(host.querySelector('[data-change=worse]')?.textContent).toContain(
      '-0.15 .. -0.05'
    );
    expect(host.querySelector('mark')).toBeNull();
    act(() => host.querySelector<HTMLElement>('th button')?.click());
    const marks = [...host.querySelectorAll('mark')].map(
      one => one.textContent
    );
    expect(marks).toEqual(['main ', `${HOSTILE} `]);
    expect(host.querySelectorAll('img')).toHaveLength(0);
    expect(host.textContent).toContain('exact_match 1 → 0');
    act(() => root.unmount());
    vi.unstubAllGlobals();
  });

  it('opens one of the rows that have no key', async () => {
    vi.stubGlobal('IS_REACT_ACT_ENVIRONMENT', true);
    const without = { ...ROW, key: 'None' };
    const model = new ScoresModel(
      server(path =>
        path.startsWith('compare/scores')
          ? COMPARISON
          : { ...(usual(path) as object), rows: [without, without] }
      ),
      ['a', 'b']
    );
    await model.refresh();
    const host = document.createElement('div');
    const root = createRoot(host);
    act(() => root.render(<ScoresSection model={model} />));
    act(() => host.querySelector<HTMLElement>('th button')?.click());
    expect(host.querySelectorAll('.llmops-scores-opened')).toHaveLength(1);
    act(() => root.unmount());
    vi.unstubAllGlobals();
  });
});
