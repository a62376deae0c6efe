import { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Widget } from '@lumino/widgets';

import { renderPanel } from '../panelModule';
import { Json } from '../tokens';
import { SavedRun } from './model';

const MIME_TYPE = 'application/vnd.llmops.run+json';

/**
 * Shows a run from the notebook alone: without a kernel, without widget state.
 */
class RunRenderer extends Widget implements IRenderMime.IRenderer {
  constructor() {
    super();
    this.addClass('llmops-mime');
  }

  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this._erase();
    this.node.textContent = '';
    this._erase = renderPanel(
      new SavedRun(model.data[MIME_TYPE] as unknown as Json),
      this.node
    );
    return Promise.resolve();
  }

  override dispose(): void {
    this._erase();
    super.dispose();
  }

  private _erase: () => void = () => undefined;
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
