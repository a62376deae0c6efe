import { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Widget } from '@lumino/widgets';

import { browserStore } from '../panel/chartTools';
import { RunPanel } from '../panel/panel';
import { RunData } from '../panel/runData';
import { IPanelState } from '../panel/state';

const MIME_TYPE = 'application/vnd.llmops.run+json';

/** A run as a saved notebook keeps it. */
interface ISavedRun {
  panel?: {
    state?: IPanelState;
    /** Its rows, in base64. */
    columns?: unknown;
  };
}

/**
 * Shows a run from the notebook alone: without a kernel, without widget state. Nothing changes any
 * more, and nothing can be asked.
 */
class RunRenderer extends Widget implements IRenderMime.IRenderer {
  constructor() {
    super();
    this.addClass('llmops-mime');
  }

  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const { panel } = model.data[MIME_TYPE] as unknown as ISavedRun;
    const state = panel?.state ?? {};
    const data = new RunData();
    data.describe(state.columns ?? []);
    data.write(0, decoded(panel?.columns));
    this._panel?.dispose();
    this.node.textContent = '';
    this._panel = new RunPanel(this.node, data, { charts: browserStore() });
    this._panel.show({
      state,
      log: 'A notebook does not keep the log; it is in the run’s panel and in its folder.'
    });
    return Promise.resolve();
  }

  override dispose(): void {
    this._panel?.dispose();
    super.dispose();
  }

  private _panel: RunPanel | null = null;
}

/** Base64 as bytes; nothing for what is none. */
function decoded(text: unknown): ArrayBuffer {
  let bytes: string;
  try {
    bytes = typeof text === 'string' ? atob(text) : '';
  } catch {
    bytes = '';
  }
  return Uint8Array.from(bytes, character => character.charCodeAt(0)).buffer;
}

const extension: IRenderMime.IExtension = {
  id: '@llmops/lab:run-renderer',
  description: 'Shows training runs in notebook outputs.',
  rendererFactory: {
    safe: true,
    mimeTypes: [MIME_TYPE],
    createRenderer: () => new RunRenderer()
  },
  // Before the picture (90), behind a live widget (0).
  rank: 50,
  dataType: 'json'
};

export default extension;
