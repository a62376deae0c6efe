import { acceptCompletion, startCompletion } from '@codemirror/autocomplete';
import { openLintPanel } from '@codemirror/lint';
import { JupyterFrontEnd } from '@jupyterlab/application';
import { IEditorTracker } from '@jupyterlab/fileeditor';

import { CommandIDs } from '../commands';
import { trans } from '../trans';
import { AssistedEditor } from './assisted';
import { IEditors } from './configCommands';

/**
 * What the keyboard does inside the editor of a config.
 */
export function addEditorCommands(services: {
  app: JupyterFrontEnd;
  tracker: IEditorTracker;
  editors: IEditors;
}): void {
  const { app, tracker, editors } = services;
  const current = (): AssistedEditor | null => {
    const editor = editors.get(tracker.currentWidget?.id ?? '');
    return editor?.kind ? editor : null;
  };
  const describedBy = { args: { type: 'object', properties: {} } };

  app.commands.addCommand(CommandIDs.showConfigProblems, {
    label: trans.__('Show Problems of This Config'),
    caption: trans.__('List the mistakes; move through them with the keyboard'),
    describedBy,
    isEnabled: () => current() !== null,
    execute: () => {
      const view = current()?.view;
      if (view) {
        openLintPanel(view);
      }
    }
  });

  app.commands.addCommand(CommandIDs.completeConfig, {
    label: trans.__('Complete This Config'),
    caption: trans.__('Suggest values for this position'),
    describedBy,
    isEnabled: () => current() !== null,
    execute: () => {
      const view = current()?.view;
      if (view && !acceptCompletion(view)) {
        startCompletion(view);
      }
    }
  });
  // More specific than the selector of JupyterLab's own completer, which knows only the words
  // of the text.
  app.commands.addKeyBinding({
    command: CommandIDs.completeConfig,
    keys: ['Tab'],
    selector: '.jp-FileEditor.llmops-configs-editor .jp-mod-completer-enabled'
  });
}
