import * as React from 'react';

import { TableActions } from './actions';
import { RunTableModel } from './model';

/**
 * What the parts of the table need.
 */
export interface IGridProps {
  model: RunTableModel;
  open: (runId: string) => void;
  menu: (runId: string, event: React.MouseEvent) => void;
}

export interface IRunTableProps extends IGridProps {
  actions: TableActions;
}
