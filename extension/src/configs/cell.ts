import { JupyterFrontEnd } from '@jupyterlab/application';
import { Cell } from '@jupyterlab/cells';
import { PathExt } from '@jupyterlab/coreutils';
import { INotebookTracker } from '@jupyterlab/notebook';

import { argsOf, CommandIDs } from '../commands';
import { submitIcon } from '../icons';
import { ILLMOps } from '../tokens';
import { trans } from '../trans';
import * as requests from './requests';
import { ISubmissions } from './tokens';

const LOOK_DELAY_MS = 300;

interface ICellServices {
  app: JupyterFrontEnd;
  llmops: ILLMOps;
  submissions: ISubmissions;
  notebooks: INotebookTracker;
}

/**
 * The command behind the button of a cell's toolbar (`schema/plugin.json`), which is there
 * only while the cell looks like a training config.
 */
export function addCellCommand(services: ICellServices): void {
  const { app, notebooks } = services;
  const text = () => configIn(notebooks.activeCell);
  app.commands.addCommand(CommandIDs.submitCell, {
    label: args =>
      args.toolbar ? '' : trans.__('Submit This Cell as a Training Config…'),
    caption: trans.__('Submit this cell as a training config'),
    icon: submitIcon,
    describedBy: argsOf(),
    isEnabled: () => text() !== null,
    isVisible: () => text() !== null,
    execute: () => submitCell(services, text())
  });
  watch(services);
}

function configIn(cell: Cell | null): string | null {
  return cell ? configOf(cell.model.sharedModel.getSource()) : null;
}

async function submitCell(
  services: ICellServices,
  text: string | null
): Promise<void> {
  const { app, llmops, submissions, notebooks } = services;
  const notebook = notebooks.currentWidget;
  if (text === null || !notebook) {
    return;
  }
  const path = app.serviceManager.contents.localPath(notebook.context.path);
  const workspace = PathExt.dirname(path);
  const decision = await submissions.ask({
    title: trans.__('Submit this cell as a training config'),
    check: (overrides, signal) =>
      requests.check(
        llmops,
        { kind: 'train', path, text, overrides, with_files: true },
        signal
      )
  });
  if (decision) {
    await submissions.submitter.submit(
      { text, workspace },
      decision.cluster,
      decision.overrides
    );
  }
}

/** Update the button when another cell or text may show or hide it. */
function watch({ app, notebooks }: ICellServices): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let watched: Cell | null = null;
  const update = () => {
    clearTimeout(timer);
    timer = setTimeout(
      () => app.commands.notifyCommandChanged(CommandIDs.submitCell),
      LOOK_DELAY_MS
    );
  };
  notebooks.activeCellChanged.connect((_, cell) => {
    if (watched && !watched.isDisposed) {
      watched.model.contentChanged.disconnect(update);
    }
    watched = cell;
    cell?.model.contentChanged.connect(update);
    update();
  });
}

/**
 * The config in a cell: its text without a first line such as `%%yaml`; null when the cell
 * does not look like a training config.
 */
export function configOf(source: string): string | null {
  const [first, ...rest] = source.split('\n');
  if (/^\s*%%ya?ml\b/.test(first)) {
    return rest.join('\n');
  }
  const hasKey = (key: string) =>
    new RegExp(`^${key}[ \\t]*:([ \\t]|$)`, 'm').test(source);
  return hasKey('model') && hasKey('data') ? source : null;
}
