import { Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { trans } from '../trans';
import { ConfigCheck } from '../wire';
import { Findings } from './findings';

/**
 * Show what a check found of a file that is not open.
 * @returns whether the user wants to edit it
 */
export async function showFindings(
  title: string,
  check: ConfigCheck
): Promise<boolean> {
  const edit = Dialog.createButton({ label: trans.__('Open File') });
  const close = Dialog.okButton({ label: trans.__('Close') });
  const result = await showDialog({
    title,
    body: (
      <div className="llmops-lab-dialog llmops-configs-submit">
        <Findings check={check} />
      </div>
    ),
    buttons: check.valid ? [close] : [edit, close],
    defaultButton: check.valid ? 0 : 1
  });
  return !check.valid && result.button.label === edit.label;
}
