import { Clipboard, Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { asTrouble } from '../api';
import { TroubleBox } from './parts';

/**
 * Ask before something is lost. Each line is a paragraph, `items` a list below them.
 */
export async function confirm(options: {
  title: string;
  lines: string[];
  items?: string[];
  action: string;
  danger?: boolean;
}): Promise<boolean> {
  const { title, lines, items = [], action, danger = true } = options;
  const body = (
    <div className="llmops-lab-dialog">
      {lines.map((line, index) => (
        <p key={index}>{line}</p>
      ))}
      {items.length > 0 && (
        <ul>
          {items.map((item, index) => (
            <li key={index}>{item}</li>
          ))}
        </ul>
      )}
    </div>
  );
  const accept = danger
    ? Dialog.warnButton({ label: action })
    : Dialog.okButton({ label: action });
  const result = await showDialog({
    title,
    body,
    buttons: [Dialog.cancelButton(), accept],
    // Return must not delete anything.
    defaultButton: danger ? 0 : 1
  });
  return result.button.accept;
}

/**
 * Show what went wrong with its remedy; the text can be copied.
 */
export async function showError(title: string, error: unknown): Promise<void> {
  const trouble = asTrouble(error);
  const copy = Dialog.createButton({ label: 'Copy', actions: ['copy'] });
  const result = await showDialog({
    title,
    body: (
      <div className="llmops-lab-dialog">
        <TroubleBox trouble={trouble} />
      </div>
    ),
    buttons: [copy, Dialog.okButton({ label: 'Close' })]
  });
  if (result.button.actions.includes('copy')) {
    const { message, remedy, problems } = trouble;
    const lines = problems.map(p => `${p.path}: ${p.message}; ${p.suggestion}`);
    Clipboard.copyToSystem([message, ...lines, remedy].join('\n'));
  }
}

/** Do it; an error is shown in a dialog. */
export async function reported(
  title: string,
  work: () => Promise<unknown>
): Promise<void> {
  try {
    await work();
  } catch (error) {
    await showError(title, error);
  }
}
