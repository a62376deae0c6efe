import { ISignal } from '@lumino/signaling';
import * as React from 'react';

const TICK_MS = 5000;

/**
 * Draw again with each change of a model.
 */
export function useChanges(model: {
  changed: ISignal<unknown, unknown>;
}): void {
  const [, again] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => {
    const listen = () => again();
    model.changed.connect(listen);
    listen(); // For what has changed since the drawing.
    return () => {
      model.changed.disconnect(listen);
    };
  }, [model]);
}

/**
 * Unix time in seconds, for ages; updated every five seconds.
 */
export function useNow(): number {
  const [now, setNow] = React.useState(() => Date.now() / 1000);
  React.useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/**
 * Arrow keys, Home and End move through a list, or a row: between the elements that `selector`
 * finds in it, from them or from another part of their list item.
 */
export function moveByArrows(
  event: React.KeyboardEvent<HTMLElement>,
  selector: string,
  layout: 'list' | 'row' = 'list'
): void {
  const rows = [...event.currentTarget.querySelectorAll<HTMLElement>(selector)];
  const visible = rows.filter(
    row => row.closest('details:not([open])') === null
  );
  const focused = event.target as HTMLElement;
  const item = layout === 'list' ? focused.closest('li') : null;
  const at = visible.findIndex(row => row === focused || item?.contains(row));
  if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) {
    return;
  }
  const last = visible.length - 1;
  const [next, before] =
    layout === 'list' ? ['ArrowDown', 'ArrowUp'] : ['ArrowRight', 'ArrowLeft'];
  const wanted: Record<string, number> = {
    [next]: Math.min(last, at + 1),
    [before]: Math.max(0, at - 1),
    Home: 0,
    End: last
  };
  if (event.key in wanted) {
    event.preventDefault();
    visible[wanted[event.key]].focus();
  }
}

/**
 * One item of a list is a place for Tab, with all that can be done to it: the one that had the
 * focus last, else the first. A list of a hundred has hundreds of buttons, and arrow keys reach
 * the others.
 *
 * @returns what the list's element gets; the hook must be called whenever its items are drawn
 */
export function useOneTabStop(itemSelector: string): {
  ref: React.RefObject<HTMLElement>;
  onFocus: (event: React.FocusEvent) => void;
} {
  const ref = React.useRef<HTMLElement>(null);
  const last = React.useRef<HTMLElement | null>(null);
  const arrange = () => {
    const items = [
      ...(ref.current?.querySelectorAll<HTMLElement>(itemSelector) ?? [])
    ];
    const shown = items.filter(item => !item.closest('details:not([open])'));
    if (!last.current || !shown.includes(last.current)) {
      last.current = shown[0] ?? null;
    }
    items.forEach(item =>
      item.querySelectorAll<HTMLElement>('button, input').forEach(part => {
        part.tabIndex = item === last.current ? 0 : -1;
      })
    );
  };
  React.useLayoutEffect(arrange);
  return {
    ref,
    onFocus: event => {
      const item = (event.target as HTMLElement).closest<HTMLElement>(
        itemSelector
      );
      if (item && item !== last.current) {
        last.current = item;
        arrange();
      }
    }
  };
}
