import * as React from 'react';

/**
 * Arrow keys, Home and End move through a list, or a row: between the elements that `selector`
 * finds in it. Tab still reaches each row's other buttons.
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
  const at = visible.indexOf(focused);
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
