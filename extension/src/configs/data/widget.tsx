import { MainAreaWidget } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { trans } from '../../trans';
import { scrolled } from '../../ui/mainArea';
import { dataIcon } from '../icons';
import { DataModel } from './model';
import { DataView } from './view';

export function dataWidgetId(path: string): string {
  return `llmops-data-${path}`;
}

/**
 * The data of one config in the main area.
 */
export class DataWidget extends MainAreaWidget<ReactWidget> {
  constructor(readonly model: DataModel) {
    super({ content: scrolled(<DataView model={model} />) });
    const name = PathExt.basename(model.path);
    this.id = dataWidgetId(model.path);
    this.title.icon = dataIcon;
    this.title.label = trans.__('Data: %1', name);
    this.title.caption = trans.__(
      'The data of %1 as the model will see it',
      model.path
    );
    this.title.closable = true;
    this.toolbar.hide();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      super.dispose();
      this.model.dispose();
    }
  }
}
