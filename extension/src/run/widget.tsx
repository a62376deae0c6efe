import {
  CommandToolbarButton,
  MainAreaWidget,
  Toolbar
} from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { CommandIDs } from '../commands';
import { runsIcon } from '../icons';
import { nameOf } from '../runs/model';
import { trans } from '../trans';
import { scrolled } from '../ui/widgets';
import { LogModel } from './logModel';
import { RunModel } from './model';
import * as requests from './requests';
import { IRunViewServices, RunView } from './view';

/** Short words in the toolbar; the whole ones are in the tooltips. */
function buttons(): [string, string][] {
  return [
    [CommandIDs.stopRun, trans.__('Stop…')],
    [CommandIDs.retryRun, trans.__('Retry')],
    [CommandIDs.resubmitRun, trans.__('Re-submit…')],
    [CommandIDs.compareRuns, trans.__('Compare…')],
    [CommandIDs.openRunJob, trans.__('Ray job')],
    ['', ''],
    [CommandIDs.starRun, trans.__('Star')],
    [CommandIDs.renameRun, trans.__('Rename…')],
    [CommandIDs.openRunFolder, trans.__('Folder')],
    [CommandIDs.deleteRun, trans.__('Delete…')]
  ];
}

export function runWidgetId(runId: string): string {
  return `llmops-run-${runId}`;
}

/**
 * One run in the main area. Works without a kernel and without a cluster.
 */
export class RunWidget extends MainAreaWidget<ReactWidget> {
  constructor(
    readonly runId: string,
    private services: IRunViewServices,
    commands: CommandRegistry
  ) {
    const model = services.models.take(runId);
    const { llmops } = services;
    const log = new LogModel({
      read: (place, signal) => requests.logWindow(llmops, runId, place, signal),
      search: (what, signal) => requests.searchLog(llmops, runId, what, signal)
    });
    super({
      content: scrolled(<RunView {...services} model={model} log={log} />)
    });
    this.model = model;
    this.log = log;
    this.id = runWidgetId(runId);
    this.addClass('llmops-runpanel');
    this.title.icon = runsIcon;
    this.title.closable = true;
    this.fillToolbar(commands);
    model.changed.connect(this.retitle, this);
    this.retitle();
  }

  readonly model: RunModel;

  override dispose(): void {
    if (!this.isDisposed) {
      this.model.changed.disconnect(this.retitle, this);
      super.dispose();
      this.log.dispose();
      this.services.models.giveBack(this.model);
    }
  }

  private fillToolbar(commands: CommandRegistry): void {
    const { runId } = this;
    buttons().forEach(([id, label]) => {
      const item =
        id === ''
          ? Toolbar.createSpacerItem()
          : new CommandToolbarButton({
              commands,
              id,
              label,
              args: { runId, runIds: [runId] }
            });
      this.toolbar.addItem(id || 'spacer', item);
    });
  }

  private retitle(): void {
    const row = this.model.state?.row;
    if (row) {
      // The toolbar asks for it; it may be older than those that are listed.
      this.services.runs.learn(row);
    }
    const state = row ? ` (${row.state.toLowerCase()})` : '';
    this.title.label = row ? nameOf(row) : this.runId;
    this.title.caption = `${this.runId}${state}`;
  }

  private log: LogModel;
}
