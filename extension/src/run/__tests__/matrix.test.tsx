import * as React from 'react';
import { act } from 'react';
import { createRoot } from 'react-dom/client';
import { describe, expect, it } from 'vitest';

import { Comparison, MatrixField } from '../../wire';
import { Matrix, shownFields } from '../compare/matrix';

function field(path: string, is_minor = false): MatrixField {
  return { path, label: path.split('.').pop() ?? path, is_minor };
}

const cell = (text: string, change = '', is_best = false) => ({
  number: null,
  text,
  change,
  is_best
});

const COMPARISON = {
  base: 0,
  runs: [1, 2, 3].map(seed => ({
    run_id: `tiny-${seed}`,
    title: '',
    differs: `lr 1e-4 · seed ${seed}`,
    state: 'SUCCEEDED'
  })),
  matrix: {
    fields: [field('optimizer.learning_rate'), field('output.url', true)],
    figures: ['eval loss'],
    lines: [
      {
        runs: [0, 1],
        label: 'mean of 2 seeds',
        values: ['1e-4', '2 values'],
        cells: [cell('0.5 ± 0.1')],
        is_base: true,
        note: ''
      },
      ...[0, 1, 2].map(run => ({
        runs: [run],
        label: `run ${run}`,
        values: ['1e-4', `/o/${run}`],
        cells: [cell(`0.${run}`, run ? `+0.${run}` : '', run === 0)],
        is_base: run === 0,
        note: ''
      }))
    ]
  }
} as unknown as Comparison;

function shown(setBase: (runId: string) => void = () => undefined) {
  const host = document.createElement('div');
  act(() =>
    createRoot(host).render(
      <Matrix
        comparison={COMPARISON}
        open={() => undefined}
        setBase={setBase}
      />
    )
  );
  return host;
}

describe('the matrix of several runs', () => {
  it('has a line a run, and one before those of one setting', () => {
    const lines = [...shown().querySelectorAll('tbody tr')];
    expect(lines).toHaveLength(4);
    expect(lines[0].textContent).toBe('mean of 2 seeds1e-40.5 ± 0.1');
    expect(lines[2].textContent).toContain('0.1+0.1');
    expect(lines[1].querySelector('[data-best="true"]')).not.toBeNull();
  });

  it('names what differs by its path, and what says little when asked', () => {
    const host = shown();
    const heads = () =>
      [...host.querySelectorAll('thead th')].map(
        ({ textContent }) => textContent
      );
    expect(heads()).toEqual(['Run', 'learning_rate', 'eval loss']);
    const more = host.querySelector<HTMLButtonElement>(
      'button.llmops-runs-link'
    );
    expect(more?.textContent).toBe('Show 1 more that differs');
    act(() => more?.click());
    expect(heads()).toEqual(['Run', 'learning_rate', 'url', 'eval loss']);
  });

  it('lets one choose the baseline, and says to whom which is', () => {
    const chosen: string[] = [];
    const host = shown(runId => chosen.push(runId));
    const radios = host.querySelectorAll<HTMLInputElement>('input[type=radio]');
    expect([...radios].map(({ checked }) => checked)).toEqual([
      true,
      false,
      false
    ]);
    act(() => radios[2].click());
    expect(chosen).toEqual(['tiny-3']);
    expect(radios[2].getAttribute('aria-label')).toContain('lr 1e-4 · seed 3');
  });

  it('shows at most five columns of what differs before the figures', () => {
    const fields = ['a', 'b', 'c', 'd', 'e', 'f', 'g'].map(name => field(name));
    expect(shownFields({ fields }, false)).toEqual([0, 1, 2, 3, 4]);
    expect(shownFields({ fields }, true)).toHaveLength(7);
  });
});
