import { acceptCompletion, startCompletion } from '@codemirror/autocomplete';
import { openLintPanel } from '@codemirror/lint';
import { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { IEditorTracker } from '@jupyterlab/fileeditor';
import { Contents } from '@jupyterlab/services';
import {
  checkIcon,
  fileIcon,
  LabIcon,
  listIcon,
  runIcon
} from '@jupyterlab/ui-components';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { argsOf, CommandIDs } from '../commands';
import { submitIcon } from '../icons';
import { ILLMOps } from '../tokens';
import { trans } from '../trans';
import { showError } from '../ui/dialogs';
import { ConfigKind } from '../wire';
import { AssistedEditor } from './assisted';
import { showFindings } from './findings';
import { titleOf } from './kinds';
import * as requests from './requests';
import { ISubmissions } from './tokens';

/** Editors of config files, by the id of their widget. */
export type IEditors = Map<string, AssistedEditor>;

/** Where a command finds the file that it is about. */
export interface ITargets {
  app: JupyterFrontEnd;
  submissions: ISubmissions;
  browser: IDefaultFileBrowser | null;
  tracker: IEditorTracker;
  editors: IEditors;
}

interface IServices extends ITargets {
  llmops: ILLMOps;
  submit: (editor: AssistedEditor) => void;
}

type Args = ReadonlyPartialJSONObject;

export const FROM_BROWSER = { from: 'browser' };
export const FILE = '.jp-DirListing-item[data-isdir="false"]';
// A folder's line, or the empty space below all lines.
const FOLDER = '.jp-DirListing-content';
const PATH_ARGS = argsOf({
  path: 'The file, in the file browser',
  from: 'browser: the file selected there'
});

/**
 * Check, submit, start, new: for the file that is edited, selected or named.
 */
export function addConfigCommands(services: IServices): void {
  addFileCommands(services);
  addNewConfig(services);
}

/** A command that is about one file: the edited one, a selected one, or a named one. */
export interface IFileCommand {
  id: string;
  /** Of the kinds only configs of runs, or only others; null: any. */
  isRun: boolean | null;
  /** Only this kind, by its name. */
  kind?: string;
  /** In the context menu. */
  rank: number;
  label: string;
  /** In the context menu, where the file is plain to see. */
  short: string;
  caption: string;
  icon: LabIcon;
  /** `editor` is given when the command is about what is edited. */
  run: (path: string, editor: AssistedEditor | null) => void;
}

function addFileCommands(services: IServices): void {
  const commands = [
    submitCommand(services),
    startCommand(services),
    checkCommand(services)
  ];
  commands.forEach(command => addFileCommand(services, command));
}

export function addFileCommand(
  services: ITargets,
  command: IFileCommand
): void {
  const { isRun, kind, label, short, caption, icon, rank, run } = command;
  const pathOf = (args: Args) => {
    const path = target(services, args, isRun);
    const name = services.submissions.kinds.of(path ?? '')?.name;
    return kind === undefined || name === kind ? path : null;
  };
  services.app.contextMenu.addItem({
    command: command.id,
    selector: FILE,
    rank,
    args: FROM_BROWSER
  });
  services.app.commands.addCommand(command.id, {
    label: args => (args.from ? short : label),
    caption,
    icon,
    describedBy: PATH_ARGS,
    isEnabled: args => pathOf(args) !== null,
    isVisible: args => !args.from || pathOf(args) !== null,
    execute: args => {
      const path = pathOf(args);
      if (path !== null) {
        const isEdited = args.from === undefined && args.path === undefined;
        run(path, isEdited ? currentEditor(services) : null);
      }
    }
  });
}

function submitCommand(services: IServices): IFileCommand {
  const { submit } = services;
  return {
    id: CommandIDs.submitConfig,
    rank: 3,
    isRun: true,
    label: trans.__('Submit This Config'),
    short: trans.__('Submit to Cluster…'),
    caption: trans.__('Submit this config to a cluster'),
    icon: submitIcon,
    run: (path, editor) =>
      editor ? submit(editor) : void askAndSubmit(services, path)
  };
}

function startCommand(services: IServices): IFileCommand {
  const { submissions } = services;
  return {
    id: CommandIDs.startTemplate,
    rank: 3.1,
    isRun: false,
    label: trans.__('Start a Cluster from This Template'),
    short: trans.__('Start This Cluster'),
    caption: trans.__('Start the cluster that this template describes'),
    icon: runIcon,
    run: path => void submissions.submitter.start(path)
  };
}

function checkCommand(services: IServices): IFileCommand {
  return {
    id: CommandIDs.checkConfig,
    rank: 3.2,
    isRun: null,
    label: trans.__('Check This Config'),
    short: trans.__('Check Config'),
    caption: trans.__('List all mistakes without starting anything'),
    icon: checkIcon,
    run: (path, editor) =>
      editor ? void editor.check() : void checkFile(services, path)
  };
}

function currentEditor(services: ITargets): AssistedEditor | null {
  const id = services.tracker.currentWidget?.id ?? '';
  return services.editors.get(id) ?? null;
}

/** The local path of what a command is about; null when it is no such config. */
function target(
  services: ITargets,
  args: Args,
  isRun: boolean | null
): string | null {
  const { app, browser, submissions } = services;
  let path: string | undefined;
  if (typeof args.path === 'string') {
    path = args.path;
  } else if (args.from === 'browser') {
    const items = [...(browser?.selectedItems() ?? [])];
    path = items.length === 1 ? items[0].path : undefined;
  } else {
    path = currentEditor(services)?.widget.context.path;
  }
  const local = path && app.serviceManager.contents.localPath(path);
  const found = submissions.kinds.of(local);
  return local && found && (isRun === null || found.is_run === isRun)
    ? local
    : null;
}

export async function textOf(
  app: JupyterFrontEnd,
  path: string
): Promise<string> {
  const { contents } = app.serviceManager;
  const options = { type: 'file', format: 'text', content: true } as const;
  const model = await contents.get(path, options);
  return String(model.content);
}

async function checkFile(services: IServices, path: string): Promise<void> {
  const { app, llmops } = services;
  const name = PathExt.basename(path);
  const id = Notification.emit(trans.__('Checking %1…', name), 'in-progress', {
    autoClose: false
  });
  try {
    const text = await textOf(app, path);
    const body = { path, text, with_files: true, closely: true };
    const check = await requests.check(llmops, body);
    Notification.dismiss(id);
    if (await showFindings(name, check)) {
      await app.commands.execute('docmanager:open', { path });
    }
  } catch (error) {
    await showError(trans.__('This file was not checked'), error);
  } finally {
    Notification.dismiss(id);
  }
}

async function askAndSubmit(services: IServices, path: string): Promise<void> {
  const { app, llmops, submissions, editors } = services;
  try {
    // What is submitted is the file: an open editor's changes go into it first.
    const open = [...editors.values()].filter(editor => editor.path === path);
    await Promise.all(open.map(editor => editor.save()));
  } catch (error) {
    await showError(trans.__('The file was not saved'), error);
    return;
  }
  const decision = await submissions.ask({
    title: trans.__('Submit %1', PathExt.basename(path)),
    check: async (overrides, signal) => {
      const text = await textOf(app, path);
      const body = { path, text, overrides, with_files: true };
      return requests.check(llmops, body, signal);
    }
  });
  if (decision) {
    const { cluster, overrides } = decision;
    await submissions.submitter.submit({ path }, cluster, overrides);
  }
}

function addNewConfig(services: IServices): void {
  const { app, llmops, browser, submissions } = services;
  app.commands.addCommand(CommandIDs.newConfig, {
    label: args => {
      const kind = submissions.kinds.named(String(args.kind ?? 'train'));
      return trans.__('New %1', titleOf(kind));
    },
    caption: trans.__('Create a config in which every field is explained'),
    icon: args => (args.from ? fileIcon : listIcon),
    describedBy: argsOf({
      cwd: 'Folder of the new file',
      kind: '`train`, `script` or `cluster`'
    }),
    execute: async args => {
      const name = typeof args.kind === 'string' ? args.kind : 'train';
      const kind = submissions.kinds.named(name);
      const folder =
        typeof args.cwd === 'string' ? args.cwd : selectedFolder(browser, args);
      if (kind) {
        await createConfig({ app, llmops, kind, folder });
      }
    }
  });
  app.contextMenu.addItem({
    command: CommandIDs.newConfig,
    selector: FOLDER,
    rank: 55,
    args: FROM_BROWSER
  });
}

function selectedFolder(browser: IDefaultFileBrowser | null, args: Args) {
  const [item] = args.from ? [...(browser?.selectedItems() ?? [])] : [];
  return item?.type === 'directory' ? item.path : (browser?.model.path ?? '');
}

/** `new.train.yaml`, `new-2.train.yaml`, ...: the first that is not there yet. */
export function freeName(wanted: string, taken: ReadonlySet<string>): string {
  const [stem, ...rest] = wanted.split('.');
  const ending = rest.join('.');
  let name = wanted;
  for (let number = 2; taken.has(name); number += 1) {
    name = `${stem}-${number}.${ending}`;
  }
  return name;
}

/**
 * Write the server's template of a kind into a folder and open it.
 */
async function createConfig(options: {
  app: JupyterFrontEnd;
  llmops: ILLMOps;
  kind: ConfigKind;
  folder: string;
}): Promise<void> {
  const { app, llmops, kind, folder } = options;
  const { contents } = app.serviceManager;
  try {
    const content = await requests.template(llmops, kind.name);
    const { content: files } = await contents.get(folder);
    const names = (files as Contents.IModel[]).map(file => file.name);
    const path = PathExt.join(folder, freeName(kind.new_file, new Set(names)));
    await contents.save(path, { type: 'file', format: 'text', content });
    await app.commands.execute('docmanager:open', { path });
  } catch (error) {
    await showError(trans.__('The file was not written'), error);
  }
}

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
  const describedBy = argsOf();

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
