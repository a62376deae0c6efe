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
import { LogModel } from './logModel';
import { RunModel } from './model';
import * as requests from './requests';
import { IRunViewServices, RunView } from './view';

const BUTTONS = [
  CommandIDs.stopRun,
  CommandIDs.retryRun,
  CommandIDs.resubmitRun,
  CommandIDs.compareRuns,
  CommandIDs.openRunJob,
  '',
  CommandIDs.starRun,
  CommandIDs.renameRun,
  CommandIDs.openRunFolder,
  CommandIDs.deleteRun
];

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
      content: ReactWidget.create(
        <RunView {...services} model={model} log={log} />
      )
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
    BUTTONS.forEach((id, index) => {
      const item =
        id === ''
          ? Toolbar.createSpacerItem()
          : new CommandToolbarButton({
              commands,
              id,
              args: { runId, runIds: [runId] }
            });
      this.toolbar.addItem(id || `spacer-${index}`, item);
    });
  }

  private retitle(): void {
    const row = this.model.state?.row;
    const state = row ? ` (${row.state.toLowerCase()})` : '';
    this.title.label = row?.title || this.runId;
    this.title.caption = `${this.runId}${state}`;
  }

  private log: LogModel;
}
