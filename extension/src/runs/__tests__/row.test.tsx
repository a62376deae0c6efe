import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import * as React from 'react';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';
import { afterEach, describe, expect, it, vi } from 'vitest';

import { setTranslator } from '../../trans';
import { IRowProps, Row } from '../row';
import { row } from './runRow';

const RUN = row('lora-1');

describe('Row', () => {
  afterEach(() => setTranslator(nullTranslator));

  it('is drawn again only if something of it has changed', () => {
    const words = nullTranslator.load('llmops');
    const translate = vi.fn((text: string) => words.__(text));
    const counting = { load: () => ({ __: translate }) };
    setTranslator(counting as unknown as ITranslator);
    const host = document.createElement('div');
    const root = createRoot(host);
    const props: IRowProps = {
      run: RUN,
      when: '3 s so far',
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
