import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ISessionContext } from '@jupyterlab/apputils';
import { IConsoleTracker } from '@jupyterlab/console';
import { INotebookTracker } from '@jupyterlab/notebook';

import { IPreferences } from '../tokens';

/**
 * A kernel that a reloaded page finds again may have a `cluster` of the user's.
 */
export function kernelCode(name: string): string {
  return [
    'if "cluster" not in globals():',
    '    import llmops_kernel as llmops',
    `    cluster = llmops.cluster(${JSON.stringify(name)})`
  ].join('\n');
}

/**
 * Gives each new Python kernel of a session the variable `cluster`, while the setting names one.
 */
export function attachKernels(
  session: ISessionContext,
  preferences: IPreferences
): void {
  let isFresh = session.session?.kernel !== undefined;
  const look = (): void => {
    const kernel = session.session?.kernel;
    const name = preferences.attachTo;
    if (!isFresh || !name || !kernel || kernel.status !== 'idle') {
      return;
    }
    isFresh = false;
    void kernel.info.then(info => {
      if (info.language_info.name === 'python') {
        // Silent: it is neither a cell nor part of the history.
        kernel.requestExecute({
          code: kernelCode(name),
          silent: true,
          store_history: false
        });
      }
    });
  };
  session.kernelChanged.connect((_, { newValue }) => {
    isFresh = newValue !== null;
    look();
  });
  session.statusChanged.connect((_, status) => {
    isFresh ||= status === 'restarting' || status === 'autorestarting';
    look();
  });
  // The settings may come later than the first kernel.
  preferences.changed.connect(look);
  session.disposed.connect(() => preferences.changed.disconnect(look));
  look();
}

/**
 * Off unless the setting `attachTo` names a cluster.
 */
export const attachPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:attach-kernels',
  description: 'Attaches new kernels to a cluster.',
  autoStart: true,
  requires: [IPreferences],
  optional: [INotebookTracker, IConsoleTracker],
  activate: (
    _: JupyterFrontEnd,
    preferences: IPreferences,
    notebooks: INotebookTracker | null,
    consoles: IConsoleTracker | null
  ) => {
    notebooks?.widgetAdded.connect((_, { sessionContext }) =>
      attachKernels(sessionContext, preferences)
    );
    consoles?.widgetAdded.connect((_, { sessionContext }) =>
      attachKernels(sessionContext, preferences)
    );
  }
};
