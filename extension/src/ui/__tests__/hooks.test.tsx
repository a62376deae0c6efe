import { Signal } from '@lumino/signaling';
import * as React from 'react';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';
import { describe, expect, it } from 'vitest';

import { useChanges } from '../hooks';

class Counter {
  readonly changed = new Signal<Counter, void>(this);
  count = 0;

  add(): void {
    this.count += 1;
    this.changed.emit();
  }
}

function Shown(props: { counter: Counter }): JSX.Element {
  useChanges(props.counter);
  return <b>{props.counter.count}</b>;
}

/** Its effect runs after the drawing and before the listener of its sibling is connected. */
function Adds(props: { counter: Counter }): null {
  React.useLayoutEffect(() => props.counter.add(), []);
  return null;
}

describe('useChanges', () => {
  it('shows a change between the drawing and the connecting', async () => {
    const counter = new Counter();
    const host = document.createElement('div');
    const root = createRoot(host);
    flushSync(() =>
      root.render(
        <>
          <Shown counter={counter} />
          <Adds counter={counter} />
        </>
      )
    );
    await expect.poll(() => host.textContent, { timeout: 10_000 }).toBe('1');
    counter.add();
    await expect.poll(() => host.textContent, { timeout: 10_000 }).toBe('2');
    root.unmount();
  });
});
