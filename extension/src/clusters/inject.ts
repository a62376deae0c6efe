import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ISessionContext } from '@jupyterlab/apputils';
import { IConsoleTracker } from '@jupyterlab/console';
import { INotebookTracker } from '@jupyterlab/notebook';

import { CommandIDs } from '../commands';
import { ILLMOps, IPreferences } from '../tokens';
import { trans } from '../trans';

/**
 * A kernel that a reloaded page finds again may have a `cluster` of the user's.
 */
function kernelCode(name: string): string {
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
  let attachedTo = '';
  const look = (): void => {
    const kernel = session.session?.kernel;
    const name = preferences.attachTo;
    if (!isFresh || !name || !kernel || kernel.status !== 'idle') {
      return;
    }
    isFresh = false;
    attachedTo = name;
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
  // The settings may come later than the first kernel, or change: running ones get it, too.
  const again = (): void => {
    if (preferences.attachTo !== attachedTo) {
      isFresh = true;
      look();
    }
  };
  preferences.changed.connect(again);
  session.disposed.connect(() => preferences.changed.disconnect(again));
  look();
}

function addCommand(app: JupyterFrontEnd, preferences: IPreferences): void {
  app.commands.addCommand(CommandIDs.attachKernels, {
    label: trans.__('Attach All Kernels to This Cluster'),
    caption: trans.__(
      'Each Python kernel of a notebook or console gets the variable cluster'
    ),
    describedBy: {
      args: {
        type: 'object',
        properties: {
          cluster: { type: 'string', description: 'Name of the cluster.' }
        },
        required: ['cluster']
      }
    },
    isToggleable: true,
    isToggled: args => args.cluster === preferences.attachTo,
    execute: args => {
      const name = String(args.cluster ?? '');
      return preferences.attach(preferences.attachTo === name ? '' : name);
    }
  });
}

/**
 * Off unless the setting `attachTo` names a cluster.
 */
export const attachPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:attach-kernels',
  description: 'Attaches new kernels to a cluster.',
  autoStart: true,
  // The first is for the language of its texts.
  requires: [ILLMOps, IPreferences],
  optional: [INotebookTracker, IConsoleTracker],
  activate: (
    app: JupyterFrontEnd,
    _: ILLMOps,
    preferences: IPreferences,
    notebooks: INotebookTracker | null,
    consoles: IConsoleTracker | null
  ) => {
    addCommand(app, preferences);
    notebooks?.widgetAdded.connect((_, { sessionContext }) =>
      attachKernels(sessionContext, preferences)
    );
    consoles?.widgetAdded.connect((_, { sessionContext }) =>
      attachKernels(sessionContext, preferences)
    );
  }
};
