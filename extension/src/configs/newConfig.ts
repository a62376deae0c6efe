import { JupyterFrontEnd } from '@jupyterlab/application';
import { PathExt } from '@jupyterlab/coreutils';
import { Contents } from '@jupyterlab/services';

import { ILLMOps } from '../tokens';
import { trans } from '../trans';
import { showError } from '../ui/dialogs';
import { ConfigKind } from '../wire';
import { template } from './requests';

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
export async function createConfig(options: {
  app: JupyterFrontEnd;
  llmops: ILLMOps;
  kind: ConfigKind;
  folder: string;
}): Promise<void> {
  const { app, llmops, kind, folder } = options;
  const { contents } = app.serviceManager;
  try {
    const content = await template(llmops, kind.name);
    const { content: files } = await contents.get(folder);
    const names = (files as Contents.IModel[]).map(file => file.name);
    const path = PathExt.join(folder, freeName(kind.new_file, new Set(names)));
    await contents.save(path, { type: 'file', format: 'text', content });
    await app.commands.execute('docmanager:open', { path });
  } catch (error) {
    await showError(trans.__('The file was not written'), error);
  }
}
