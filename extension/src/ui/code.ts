import { Clipboard, Notification } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookActions } from '@jupyterlab/notebook';
import { MimeData } from '@lumino/coreutils';
import { Drag } from '@lumino/dragdrop';

import { trans } from '../trans';

/** What notebooks take cells as. */
const CELLS = 'application/vnd.jupyter.cells';
const THRESHOLD_PX = 5;

/**
 * A press that moves away becomes a drag of code: a cell for a notebook, text for an editor.
 * A press that stays is none of our business.
 */
export function dragCode(
  press: MouseEvent,
  { code, label }: { code: string; label: string }
): void {
  if (press.button !== 0) {
    return;
  }
  const end = () => {
    document.removeEventListener('mousemove', move, true);
    document.removeEventListener('mouseup', end, true);
  };
  const move = (event: MouseEvent) => {
    const { clientX, clientY } = event;
    const far = Math.hypot(clientX - press.clientX, clientY - press.clientY);
    if (event.buttons === 0) {
      end(); // It was let go of outside the window.
    } else if (far >= THRESHOLD_PX) {
      end();
      startDrag(code, label, clientX, clientY);
    }
  };
  document.addEventListener('mousemove', move, true);
  document.addEventListener('mouseup', end, true);
}

function codeData(code: string): MimeData {
  const data = new MimeData();
  data.setData(CELLS, [
    {
      cell_type: 'code',
      source: code,
      metadata: {},
      outputs: [],
      execution_count: null
    }
  ]);
  data.setData('text/plain', code);
  return data;
}

function startDrag(code: string, label: string, x: number, y: number): void {
  const drag = new Drag({
    mimeData: codeData(code),
    dragImage: picture(label),
    proposedAction: 'copy',
    supportedActions: 'copy'
  });
  // The click that ends a drag over the row where it began must not open the row.
  const swallow = (event: Event) => {
    event.preventDefault();
    event.stopPropagation();
  };
  document.addEventListener('click', swallow, true);
  void drag.start(x, y).then(() => {
    drag.dispose();
    setTimeout(() => document.removeEventListener('click', swallow, true), 0);
  });
}

function picture(label: string): HTMLElement {
  const node = document.createElement('div');
  node.className = 'llmops-clusters-dragged';
  node.textContent = label;
  return node;
}

/** Below the active cell of the notebook that was used last; else on the clipboard. */
export function insertCode(
  code: string,
  notebooks: INotebookTracker | null
): void {
  const notebook = notebooks?.currentWidget?.content;
  if (notebook?.model && !notebook.model.readOnly) {
    NotebookActions.insertBelow(notebook);
    notebook.activeCell?.model.sharedModel.setSource(code);
    return;
  }
  Clipboard.copyToSystem(code);
  Notification.info(trans.__('No notebook is open: the code was copied.'), {
    autoClose: 4000
  });
}
