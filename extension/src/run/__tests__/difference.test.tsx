import { nullTranslator } from '@jupyterlab/translation';
import * as React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';
import { describe, expect, it } from 'vitest';

import { CodeChange } from '../../wire';
import { FileChanges } from '../difference';

const trans = nullTranslator.load('jupyterlab');

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
  const html = renderToStaticMarkup(
    <FileChanges changes={changes} trans={trans} />
  );
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
