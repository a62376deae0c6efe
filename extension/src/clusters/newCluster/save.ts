import { InputDialog } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { Contents, ServerConnection } from '@jupyterlab/services';

import { trans } from '../../trans';
import { confirm } from '../../ui/dialogs';

const FOLDER = 'cluster_templates';

/**
 * Asks for a path and writes the template there. Null when the user leaves it.
 */
export async function saveTemplate(
  contents: Contents.IManager,
  options: { text: string; name: string; path: string | null }
): Promise<string | null> {
  const result = await InputDialog.getText({
    title: trans.__('Save as template file'),
    label: trans.__('Path below the Jupyter root folder'),
    text: options.path ?? `${FOLDER}/${options.name || 'cluster'}.yaml`,
    okLabel: trans.__('Save')
  });
  const path = result.value?.trim().replace(/^\/+/, '');
  if (!result.button.accept || !path) {
    return null;
  }
  if ((await exists(contents, path)) && !(await replaces(path))) {
    return null;
  }
  await makeFolder(contents, PathExt.dirname(path));
  await contents.save(path, {
    type: 'file',
    format: 'text',
    content: options.text
  });
  return path;
}

function replaces(path: string): Promise<boolean> {
  return confirm({
    title: trans.__('Replace %1?', path),
    lines: [trans.__('A file with this name already exists.')],
    action: trans.__('Replace')
  });
}

async function exists(
  contents: Contents.IManager,
  path: string
): Promise<boolean> {
  try {
    await contents.get(path, { content: false });
    return true;
  } catch (error) {
    if (
      error instanceof ServerConnection.ResponseError &&
      error.response.status === 404
    ) {
      return false;
    }
    throw error;
  }
}

async function makeFolder(
  contents: Contents.IManager,
  path: string
): Promise<void> {
  if (path === '' || path === '.' || (await exists(contents, path))) {
    return;
  }
  await makeFolder(contents, PathExt.dirname(path));
  await contents.save(path, { type: 'directory' });
}
