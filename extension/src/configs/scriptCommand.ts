import { JupyterFrontEnd } from '@jupyterlab/application';
import { PathExt } from '@jupyterlab/coreutils';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { IEditorTracker } from '@jupyterlab/fileeditor';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { argsOf, CommandIDs } from '../commands';
import { submitIcon } from '../icons';
import { ILLMOps } from '../tokens';
import { trans } from '../trans';
import { showError } from '../ui/dialogs';
import { FILE, FROM_BROWSER } from './configCommands';
import * as requests from './requests';
import { IScriptStart } from './submit';
import { ISubmissions } from './tokens';

const FROM_EDITOR = { from: 'editor' };

interface IServices {
  app: JupyterFrontEnd;
  llmops: ILLMOps;
  submissions: ISubmissions;
  browser: IDefaultFileBrowser | null;
  tracker: IEditorTracker;
}

/** Whether the server submits that file, without a config, as a run of kind `script`. */
export function isScript(path: string | undefined): path is string {
  return path?.endsWith('.py') ?? false;
}

/**
 * Submit a training script as a run: asks for cluster, workers and arguments, and begins with
 * those of the last time.
 */
export function addScriptCommand(services: IServices): void {
  const { app, submissions } = services;
  const pathOf = (args: ReadonlyPartialJSONObject) => scriptOf(services, args);
  const starts = new Map<string, IScriptStart>();
  app.commands.addCommand(CommandIDs.submitScript, {
    label: args =>
      args.from
        ? trans.__('Submit to Cluster…')
        : trans.__('Submit This Script…'),
    caption: trans.__('Run this script on a cluster'),
    icon: submitIcon,
    describedBy: argsOf({
      path: 'The script',
      from: 'browser: the file selected in the file browser; editor: the edited file'
    }),
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
      const start = starts.get(path) ?? { workers: '', args: '' };
      starts.set(path, start);
      const name = PathExt.basename(path);
      const text = `script: ${JSON.stringify(name)}`;
      const decision = await submissions.askScript({
        title: trans.__('Submit %1', name),
        start,
        check: (overrides, signal) =>
          requests.check(
            services.llmops,
            { kind: 'script', path, text, overrides, with_files: true },
            signal
          )
      });
      if (decision) {
        const { cluster, overrides } = decision;
        await submissions.submitter.submit({ path }, cluster, overrides);
      }
    }
  });
  app.contextMenu.addItem({
    command: CommandIDs.submitScript,
    selector: FILE,
    rank: 3,
    args: FROM_BROWSER
  });
  app.contextMenu.addItem({
    command: CommandIDs.submitScript,
    selector: '.jp-FileEditor',
    rank: 3,
    args: FROM_EDITOR
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
      : args.from === 'browser'
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
