import * as React from 'react';
import { act } from 'react';
import { createRoot } from 'react-dom/client';
import { afterEach, expect, it } from 'vitest';

import { moveByArrows, useOneTabStop } from '../hooks';

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

function List(props: { names: string[] }): JSX.Element {
  const { ref, onFocus } = useOneTabStop('li');
  return (
    <ul
      ref={ref as React.RefObject<HTMLUListElement>}
      onFocus={onFocus}
      onKeyDown={event => moveByArrows(event, '.row')}
    >
      {props.names.map(name => (
        <li key={name}>
          <input type="checkbox" />
          <button className="row">{name}</button>
          <button>star {name}</button>
        </li>
      ))}
    </ul>
  );
}

it('has one place for Tab, with its buttons, that goes with the focus', async () => {
  const host = document.createElement('div');
  document.body.append(host);
  const root = createRoot(host);
  const draw = (...names: string[]) =>
    act(async () => root.render(<List names={names} />));
  const stops = () =>
    [...host.querySelectorAll<HTMLElement>('button, input')]
      .filter(({ tabIndex }) => tabIndex === 0)
      .map(({ textContent }) => textContent);
  await draw('a', 'b', 'c');
  expect(stops()).toEqual(['', 'a', 'star a']);
  // From any part of a row the arrows move to the next one.
  host.querySelector<HTMLElement>('li input')?.focus();
  expect(press('ArrowDown')).toBe('b');
  expect(stops()).toEqual(['', 'b', 'star b']);
  // A new run above does not take the place.
  await draw('new', 'a', 'b', 'c');
  expect(stops()).toEqual(['', 'b', 'star b']);
  await draw('new', 'a');
  expect(stops()).toEqual(['', 'new', 'star new']);
});
