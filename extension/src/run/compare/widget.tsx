import { MainAreaWidget } from '@jupyterlab/apputils';
import {
  ReactWidget,
  refreshIcon,
  ToolbarButton
} from '@jupyterlab/ui-components';
import * as React from 'react';

import { compareIcon } from '../../icons';
import { trans } from '../../trans';
import { scrolled } from '../../ui/mainArea';
import { IChartSettings } from '../../tokens';
import { CompareModel } from './model';
import { CompareView } from './view';

/** One tab for the same runs, in whatever order they were chosen. */
export function compareId(runIds: readonly string[]): string {
  return `llmops-compare-${[...runIds].sort().join('-')}`;
}

/**
 * Several runs side by side, in the main area.
 */
export class CompareWidget extends MainAreaWidget<ReactWidget> {
  constructor(
    readonly model: CompareModel,
    charts: IChartSettings,
    open: (runId: string) => void
  ) {
    super({
      content: scrolled(<CompareView {...{ model, charts, open }} />)
    });
    this.id = compareId(model.runIds);
    this.addClass('llmops-compare-widget');
    this.title.icon = compareIcon;
    this.title.label = trans.__('Compare %1 Runs', model.runIds.length);
    this.title.caption = model.runIds.join('\n');
    this.title.closable = true;
    this.toolbar.addItem(
      'refresh',
      new ToolbarButton({
        icon: refreshIcon,
        tooltip: trans.__('Reload figures and differences'),
        onClick: () => void model.refresh()
      })
    );
  }

  get runIds(): readonly string[] {
    return this.model.runIds;
  }

  override dispose(): void {
    if (!this.isDisposed) {
      super.dispose();
      this.model.dispose();
    }
  }
}
