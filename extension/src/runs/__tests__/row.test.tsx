import { nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';
import { describe, expect, it, vi } from 'vitest';

import { RunRow } from '../../wire';
import { IRowProps, Row } from '../row';

const RUN: RunRow = {
  run_id: 'lora-1',
  name: 'lora',
  title: '',
  differs: '',
  starred: false,
  cluster: 'local',
  created_s: 100,
  state: 'RUNNING',
  attempt: 1,
  reason: '',
  message: '',
  remedy: '',
  progress: null,
  fraction: null,
  eta_s: null,
  figures: [],
  curve: [],
  curve_label: '',
  hidden: false,
  kind: 'toy',
  actions: ['stop'],
  parent: null,
  submission_id: null
} as unknown as RunRow;

describe('Row', () => {
  it('is drawn again only if something of it has changed', () => {
    const words = nullTranslator.load('llmops');
    const translate = vi.fn((text: string) => words.__(text));
    const trans = { __: translate } as unknown as TranslationBundle;
    const host = document.createElement('div');
    const root = createRoot(host);
    const props: IRowProps = {
      run: RUN,
      when: '3 s so far',
      trans,
      isSelected: false,
      select: vi.fn(),
      execute: vi.fn(),
      menu: vi.fn()
    };
    const draw = (changed: Partial<IRowProps> = {}) => {
      translate.mockClear();
      flushSync(() =>
        root.render(
          <ul>
            <Row {...props} {...changed} />
          </ul>
        )
      );
      return translate.mock.calls.length;
    };
    expect(draw()).toBeGreaterThan(0);
    expect(draw()).toBe(0);
    expect(draw({ when: '8 s so far' })).toBeGreaterThan(0);
    expect(host.textContent).toContain('8 s so far');
    expect(draw({ run: { ...RUN, state: 'FAILED' } })).toBeGreaterThan(0);
    expect(host.querySelector('li')?.dataset.state).toBe('FAILED');
    expect(draw({ isSelected: true })).toBeGreaterThan(0);
    expect(host.querySelector('input')?.checked).toBe(true);
    root.unmount();
  });
});
