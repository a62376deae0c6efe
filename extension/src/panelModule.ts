import factory, { uPlot as untyped } from './generated/panel';

import { Json } from './tokens';

/**
 * What the notebook panel asks of its model: anywidget's, as far as the panel uses it.
 */
export interface IPanelModel {
  get(name: string): unknown;
  on(event: string, callback: PanelCallback): void;
  off(event: string, callback: PanelCallback): void;
  send(content: Json): void;
}

export type PanelCallback = (content?: Json, buffers?: DataView[]) => void;

interface IPanelFactory {
  initialize(context: { model: IPanelModel }): () => void;
  render(context: { model: IPanelModel; el: HTMLElement }): () => void;
}

/**
 * Draw the notebook panel of a run into `el`; the result ends it.
 */
export function renderPanel(model: IPanelModel, el: HTMLElement): () => void {
  const panel = (factory as () => IPanelFactory)();
  const forget = panel.initialize({ model });
  const erase = panel.render({ model, el });
  return () => {
    erase();
    forget();
  };
}

/**
 * The part of uPlot that is used here; the library itself is the notebook panel's copy.
 */
export interface IPlot {
  setData(data: PlotData): void;
  setSize(size: { width: number; height: number }): void;
  setScale(key: string, range: { min: number; max: number }): void;
  redraw(): void;
  destroy(): void;
}

export type PlotData = (ArrayLike<number> | (number | null)[])[];

export const UPlot = untyped as unknown as new (
  options: Json,
  data: PlotData,
  target: HTMLElement
) => IPlot;
