import { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import {
  ICommandPalette,
  MainAreaWidget,
  WidgetTracker
} from '@jupyterlab/apputils';
import { LabIcon, ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import { DockLayout, Widget } from '@lumino/widgets';

import { argsOf, CATEGORY } from '../commands';

/**
 * A panel of the left side bar: a region with a name.
 */
export abstract class SidePanel extends ReactWidget {
  constructor(id: string, icon: LabIcon, caption: string) {
    super();
    this.id = id;
    this.title.icon = icon;
    this.title.caption = caption;
    this.addClass(id);
    this.node.tabIndex = -1;
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', caption);
  }

  /** So that the next Tab reaches what is inside. */
  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.node.focus({ preventScroll: true });
  }
}

/**
 * Add a panel to the left side bar, and the command that opens it.
 */
export function addSidePanel(
  panel: SidePanel,
  options: {
    app: JupyterFrontEnd;
    palette: ICommandPalette | null;
    restorer: ILayoutRestorer | null;
    rank: number;
    command: string;
    label: string;
    caption: string;
  }
): void {
  const { app, palette, restorer, rank, command, label, caption } = options;
  app.shell.add(panel, 'left', { rank });
  restorer?.add(panel, panel.id);
  app.commands.addCommand(command, {
    label,
    caption,
    icon: panel.title.icon as LabIcon,
    describedBy: argsOf(),
    execute: () => app.shell.activateById(panel.id)
  });
  palette?.addItem({ command, category: CATEGORY });
}

/**
 * A view of the main area, which owns its model.
 */
export class MainView<
  Model extends { dispose(): void }
> extends MainAreaWidget<ReactWidget> {
  constructor(
    readonly model: Model,
    view: JSX.Element,
    title: { id: string; icon: LabIcon; label: string; caption: string }
  ) {
    super({ content: scrolled(view) });
    this.id = title.id;
    this.title.icon = title.icon;
    this.title.label = title.label;
    this.title.caption = title.caption;
    this.title.closable = true;
  }

  override dispose(): void {
    if (!this.isDisposed) {
      super.dispose();
      this.model.dispose();
    }
  }
}

/**
 * Content of a main area widget that scrolls by wheel and, with the focus, by keyboard.
 */
export function scrolled(view: JSX.Element): ReactWidget {
  const content = ReactWidget.create(view);
  content.addClass('llmops-mainarea');
  return content;
}

/**
 * Bring the widget with an id to the front of the main area; make it where it is not open.
 */
export function openOnce<View extends Widget>(
  { shell }: JupyterFrontEnd,
  tracker: WidgetTracker<View>,
  id: string,
  make: () => View,
  options: { type: string; mode?: DockLayout.InsertMode; ref?: string }
): View {
  let widget = tracker.find(each => each.id === id);
  if (!widget) {
    widget = make();
    void tracker.add(widget);
    shell.add(widget, 'main', options);
  }
  shell.activateById(widget.id);
  return widget;
}
