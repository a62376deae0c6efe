import * as React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';
import { describe, expect, it } from 'vitest';

import { CodeChange, RunDifference } from '../../wire';
import { Difference, FileChanges } from '../difference';

function change(path: string, is_code: boolean): CodeChange {
  return {
    path,
    kind: 'changed',
    unified_diff: '--- a\n+++ b\n-x\n+y\n',
    is_code,
    counts: '+1 -1'
  };
}

function page(...changes: CodeChange[]): Document {
  const html = renderToStaticMarkup(<FileChanges changes={changes} />);
  return new DOMParser().parseFromString(html, 'text/html');
}

describe('files that differ', () => {
  it('are open as code, folded as data', () => {
    const { body } = page(
      change('hooks.py', true),
      change('rows.jsonl', false),
      change('train.log', false)
    );
    const open = [...body.querySelectorAll('details[open]')];
    expect(open.map(part => part.querySelector('code')?.textContent)).toEqual([
      'hooks.py'
    ]);
    const others = body.querySelector('.llmops-otherfiles');
    expect(others?.querySelector('summary')?.textContent).toBe(
      '2 other files (data, logs, outputs)'
    );
    expect(others?.querySelectorAll('details').length).toBe(2);
  });

  it('have no line of others without any', () => {
    const { body } = page(change('hooks.py', true));
    expect(body.querySelector('.llmops-otherfiles')).toBeNull();
    expect(body.querySelector('summary')?.textContent).toBe(
      'changed hooks.py +1 -1'
    );
  });
});

describe('the heads of a difference', () => {
  it('name the runs by what differs; their ids are in the tooltips', () => {
    const config = [{ path: 'optimizer.lr', before: '1e-4', after: '2e-3' }];
    const difference = {
      before: 'lora-1',
      after: 'lora-2',
      config,
      code: [],
      environment: [],
      prediction: ''
    } as unknown as RunDifference;
    const runs = [
      { run_id: 'lora-1', title: 'Baseline', differs: 'lr 1e-4', name: 'lora' },
      { run_id: 'lora-2', title: '', differs: 'lr 2e-3', name: 'lora' }
    ];
    const html = renderToStaticMarkup(
      <Difference difference={difference} runs={runs} />
    );
    const { body } = new DOMParser().parseFromString(html, 'text/html');
    expect(body.querySelector('h3')?.textContent).toBe('Baseline→lr 2e-3');
    const heads = [...body.querySelectorAll('thead [title]')];
    expect(heads.map(head => head.getAttribute('title'))).toEqual([
      'lora-1',
      'lora-2'
    ]);
    expect(body.textContent).not.toContain('lora-');
  });
});
