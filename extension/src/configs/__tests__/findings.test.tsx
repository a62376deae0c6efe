import * as React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';
import { describe, expect, it } from 'vitest';

import { ConfigCheck, ConfigDiagnostic } from '../../wire';
import { Findings } from '../findings';

const ITEM: ConfigDiagnostic = {
  line: 3,
  column: 0,
  end_line: 3,
  end_column: 4,
  severity: 'warning',
  path: 'data.train',
  message: '3 of 9 rows repeat another one',
  value: null,
  suggestion: 'delete them',
  file: null
};

function shown(some: Partial<ConfigCheck>, onGo?: () => void): string {
  const check: ConfigCheck = {
    kind: 'train',
    valid: true,
    effect: ['Trains tiny-llama'],
    name: 'a',
    values: {},
    diagnostics: [],
    warnings: [],
    checked: [],
    ...some
  };
  return renderToStaticMarkup(<Findings check={check} onGo={onGo} />);
}

describe('what a check has found', () => {
  it('shows warnings and what was tried beside a valid config', () => {
    const html = shown({
      warnings: [ITEM, ITEM],
      checked: ['9 rows were read']
    });
    expect(html).toContain('Trains tiny-llama');
    expect(html).toContain('2 warnings:');
    expect(html).toContain('3 of 9 rows repeat another one; delete them');
    expect(html).toContain('9 rows were read');
    expect(html).not.toContain('problem');
  });

  it('shows warnings beside problems, each leading to its place', () => {
    const problem: ConfigDiagnostic = { ...ITEM, severity: 'error' };
    const html = shown(
      { valid: false, effect: [], diagnostics: [problem], warnings: [ITEM] },
      () => undefined
    );
    expect(html).toContain('1 problem:');
    expect(html).toContain('1 warning:');
    expect(html.match(/Go to line 3/g)).toHaveLength(2);
  });

  it('has no empty boxes', () => {
    expect(shown({})).not.toMatch(/warning|<ul/);
  });
});
