import { IPanelModel } from '../panelModule';
import { Json } from '../tokens';

/**
 * A run that is over, as a saved notebook keeps it: nothing changes, nothing can be asked.
 */
export class SavedRun implements IPanelModel {
  constructor(data: Json) {
    const panel = (data.panel ?? {}) as Json;
    this._values = {
      state: panel.state ?? {},
      columns: decoded(panel.columns),
      log: 'A notebook does not keep the log; it is in the run’s panel and in its folder.',
      notice: {}
    };
  }

  get(name: string): unknown {
    return this._values[name];
  }

  on(): void {
    // Nothing happens any more.
  }

  off(): void {
    // Nothing was listened to.
  }

  send(): void {
    // Nobody is there.
  }

  private _values: Json;
}

/** Base64 as bytes; nothing for what is none. */
function decoded(text: unknown): DataView {
  let bytes: string;
  try {
    bytes = typeof text === 'string' ? atob(text) : '';
  } catch {
    bytes = '';
  }
  const array = Uint8Array.from(bytes, character => character.charCodeAt(0));
  return new DataView(array.buffer);
}
