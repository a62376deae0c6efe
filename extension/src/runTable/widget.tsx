import { MainAreaWidget, ReactWidget } from '@jupyterlab/apputils';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { runsIcon } from '../icons';
import { trans } from '../trans';
import { RunTableModel } from './model';
import { IRunTableProps } from './props';
import { RunTableView } from './view';

export const WIDGET_ID = 'llmops-run-table';

/**
 * All runs as a table in the main area.
 */
export class RunTableWidget extends MainAreaWidget<ReactWidget> {
  constructor(
    readonly model: RunTableModel,
    props: Omit<IRunTableProps, 'model'>
  ) {
    super({
      content: ReactWidget.create(<RunTableView {...props} model={model} />)
    });
    this.id = WIDGET_ID;
    this.content.addClass('llmops-runtable-content');
    this.title.icon = runsIcon;
    this.title.label = trans.__('All Runs');
    this.title.caption = trans.__('All runs as a table: filter, sort, compare');
    this.title.closable = true;
    this.toolbar.hide();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      super.dispose();
      this.model.dispose();
    }
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.model.isVisible = true;
  }

  protected override onBeforeHide(message: Message): void {
    super.onBeforeHide(message);
    this.model.isVisible = false;
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.model.isVisible = this.isVisible;
  }

  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    // By keyboard alone: the arrow keys work as soon as the tab is in front.
    this.node
      .querySelector<HTMLElement>('.llmops-runtable-scroll')
      ?.focus({ preventScroll: true });
  }
}
