import { MenuSvg } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import { ReadonlyJSONObject } from '@lumino/coreutils';
import * as React from 'react';

/**
 * A menu of what can be done to one row; Lab's own context menu cannot hand the row to a command.
 * An empty id is a separator; commands that are not there are left out.
 */
export function rowMenu(
  commands: CommandRegistry,
  ids: readonly string[],
  args: ReadonlyJSONObject
): MenuSvg {
  const menu = new MenuSvg({ commands });
  ids.forEach(command => {
    if (command === '') {
      menu.addItem({ type: 'separator' });
    } else if (commands.hasCommand(command)) {
      menu.addItem({ command, args });
    }
  });
  return menu;
}

/**
 * Open it where the row was clicked; it ends with its submenus when it closes.
 */
export function openAt(
  menu: MenuSvg,
  event: React.MouseEvent,
  ...submenus: MenuSvg[]
): void {
  event.preventDefault();
  event.stopPropagation();
  // A menu closes before it runs its command, so it can only be disposed of later.
  menu.aboutToClose.connect(() => {
    setTimeout(() => [menu, ...submenus].forEach(each => each.dispose()), 0);
  });
  menu.open(event.clientX, event.clientY);
}
