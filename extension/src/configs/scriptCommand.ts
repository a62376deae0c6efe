import { JupyterFrontEnd } from '@jupyterlab/application';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { IEditorTracker } from '@jupyterlab/fileeditor';
import { TranslationBundle } from '@jupyterlab/translation';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { CommandIDs } from '../commands';
import { showError } from '../ui/dialogs';
import { submitIcon } from './icons';
import { ISubmissions } from './tokens';

const FROM_BROWSER = { from: 'browser' };

interface IServices {
  app: JupyterFrontEnd;
  submissions: ISubmissions;
  browser: IDefaultFileBrowser | null;
  tracker: IEditorTracker;
  trans: TranslationBundle;
}

/** Whether a file is a script without a config file; a script config is a config. */
export function isScript(path: string | undefined): path is string {
  return /\.py$/.test(path ?? '');
}

/**
 * Submit a training script as a run on the chosen cluster.
 */
export function addScriptCommand(services: IServices): void {
  const { app, submissions, trans } = services;
  const pathOf = (args: ReadonlyPartialJSONObject) => scriptOf(services, args);
  app.commands.addCommand(CommandIDs.submitScript, {
    label: args =>
      args.from ? trans.__('Submit as Run') : trans.__('Submit This Script'),
    caption: trans.__('Run this script on the chosen cluster'),
    icon: submitIcon,
    describedBy: {
      args: {
        type: 'object',
        properties: {
          path: { type: 'string', description: 'The script' },
          from: {
            type: 'string',
            description: 'browser: the file selected in the file browser'
          }
        }
      }
    },
    isEnabled: args => pathOf(args) !== null,
    isVisible: args => !args.from || pathOf(args) !== null,
    execute: async args => {
      const path = pathOf(args);
      if (path === null) {
        return;
      }
      try {
        await saveOpen(services, path);
      } catch (error) {
        await showError(trans.__('The file was not saved'), error);
        return;
      }
      await submissions.submitter.submit({ path }, submissions.choice.name);
    }
  });
  app.contextMenu.addItem({
    command: CommandIDs.submitScript,
    selector: '.jp-DirListing-item[data-isdir="false"]',
    rank: 3,
    args: FROM_BROWSER
  });
}

/** The local path of the named, selected or edited file; null when it is no script. */
function scriptOf(
  { app, browser, tracker }: IServices,
  args: ReadonlyPartialJSONObject
): string | null {
  const selected = [...(browser?.selectedItems() ?? [])];
  const path =
    typeof args.path === 'string'
      ? args.path
      : args.from
        ? selected.length === 1 && selected[0].path
        : tracker.currentWidget?.context.path;
  const local = path && app.serviceManager.contents.localPath(path);
  return local && isScript(local) ? local : null;
}

/** The server reads the file, so changes in open editors are saved first. */
async function saveOpen(services: IServices, path: string): Promise<void> {
  const { app, tracker } = services;
  const open = tracker.filter(
    ({ context }) =>
      context.model.dirty &&
      app.serviceManager.contents.localPath(context.path) === path
  );
  await Promise.all(open.map(({ context }) => context.save()));
}
