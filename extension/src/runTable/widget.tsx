import { Message } from '@lumino/messaging';
import * as React from 'react';

import { runsIcon } from '../icons';
import { trans } from '../trans';
import { MainView } from '../ui/widgets';
import { RunTableModel } from './model';
import { IRunTableProps } from './props';
import { RunTableView } from './view';

/**
 * All runs as a table in the main area.
 */
export class RunTableWidget extends MainView<RunTableModel> {
  constructor(model: RunTableModel, props: Omit<IRunTableProps, 'model'>) {
    super(model, <RunTableView {...props} model={model} />, {
      id: 'llmops-run-table',
      icon: runsIcon,
      label: trans.__('All Runs'),
      caption: trans.__('All runs as a table: filter, sort, compare')
    });
    this.content.addClass('llmops-runtable-content');
    this.toolbar.hide();
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
