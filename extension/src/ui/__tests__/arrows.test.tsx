import * as React from 'react';
import { createRoot } from 'react-dom/client';
import { act } from 'react';
import { afterEach, expect, it } from 'vitest';

import { moveByArrows } from '../arrows';

afterEach(() => document.body.replaceChildren());

async function list(): Promise<HTMLElement[]> {
  const host = document.createElement('div');
  document.body.append(host);
  await act(async () =>
    createRoot(host).render(
      <div onKeyDown={event => moveByArrows(event, '.row')}>
        <button className="row">a</button>
        <input />
        <details>
          <button className="row">folded</button>
        </details>
        <button className="row">b</button>
        <button className="row">c</button>
      </div>
    )
  );
  return [...host.querySelectorAll<HTMLElement>('.row, input')];
}

function press(key: string, more: KeyboardEventInit = {}): string | null {
  document.activeElement?.dispatchEvent(
    new KeyboardEvent('keydown', { key, bubbles: true, ...more })
  );
  return document.activeElement?.textContent ?? null;
}

it('moves through the rows that are shown, and stops at the ends', async () => {
  const [first, input] = await list();
  first.focus();
  expect(press('ArrowDown')).toBe('b');
  expect(press('ArrowDown')).toBe('c');
  expect(press('ArrowDown')).toBe('c');
  expect(press('ArrowUp')).toBe('b');
  expect(press('Home')).toBe('a');
  expect(press('End')).toBe('c');
  expect(press('ArrowUp', { ctrlKey: true })).toBe('c');
  expect(press('x')).toBe('c');
  input.focus();
  press('ArrowDown');
  expect(document.activeElement).toBe(input);
});
