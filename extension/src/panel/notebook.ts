/**
 * The panel as the widget of a notebook: `scripts/widget.mjs` makes one module of it, which
 * llmops_kernel/widgets/show.py loads. Its traits are state, log, notice, can_page and
 * columns; messages out: hello, resync, stop, restart, profile, profile_of, samples; in: rows, samples,
 * profile, acted.
 */

import { PanelSamples, ProfileDetail } from '../wire';
import { browserStore } from './chartTools';
import { RunPanel } from './panel';
import { RunData } from './runData';
import { INotice, IPanelState } from './state';

/** The first hello waits behind a busy cell: JupyterLab has no subshell for messages yet. */
const HELLO_AGAIN_MS = 1500;

type Packed = DataView<ArrayBuffer>;

interface ITraits {
  state: IPanelState;
  log: string;
  notice: INotice;
  can_page: boolean;
  columns: Packed | null;
}

type Message =
  | { kind: 'rows'; first: number }
  | { kind: 'samples'; page: PanelSamples }
  | { kind: 'profile'; detail: ProfileDetail }
  | { kind: 'acted'; action: string };

/** The widget's model, as far as it is used here. */
export interface IWidgetModel {
  get<Name extends keyof ITraits>(name: Name): ITraits[Name] | undefined;
  on(event: string, callback: Callback): void;
  off(event: string, callback: Callback): void;
  send(content: object): void;
}

type Callback = (content: Message, buffers?: Packed[]) => void;

/** Called once for each model: its views share its data. */
export default () => {
  const data = new RunData();
  const panels = new Set<RunPanel>();
  let samples: PanelSamples | null = null;
  let profile: ProfileDetail | null = null;
  const acting = new Map<string, () => void>();
  const drawAll = () => panels.forEach(panel => panel.draw());

  function initialize({ model }: { model: IWidgetModel }): () => void {
    const readState = () => {
      const state = model.get('state') ?? {};
      data.describe(state.columns ?? []);
      panels.forEach(panel => panel.show({ state }));
    };
    const readColumns = () => {
      data.write(0, model.get('columns'));
      drawAll();
    };
    const showTraits = () =>
      panels.forEach(panel => panel.show(traitsOf(model)));
    const onMessage: Callback = (message, buffers) => {
      if (message.kind === 'samples') {
        samples = message.page;
        panels.forEach(panel => panel.show({ samples }));
      } else if (message.kind === 'profile') {
        profile = message.detail;
        panels.forEach(panel => panel.show({ profile }));
      } else if (message.kind === 'acted') {
        acting.get(message.action)?.();
      } else if (message.kind === 'rows') {
        if (!data.write(message.first, buffers?.[0])) {
          model.send({ kind: 'resync' });
        }
        drawAll();
      }
    };
    const listeners: [string, Callback][] = [
      ['change:state', readState],
      ['change:columns', readColumns],
      ['change:log', showTraits],
      ['change:notice', showTraits],
      ['msg:custom', onMessage]
    ];
    listeners.forEach(([event, callback]) => model.on(event, callback));
    readState();
    readColumns();
    return () =>
      listeners.forEach(([event, callback]) => model.off(event, callback));
  }

  function render(view: { model: IWidgetModel; el: HTMLElement }): () => void {
    const { model, el } = view;
    const act = (kind: string) =>
      new Promise<void>(resolve => {
        acting.set(kind, resolve);
        model.send({ kind });
      });
    const canAsk = model.get('can_page');
    const panel = new RunPanel(el, data, {
      charts: browserStore(),
      stop: () => model.send({ kind: 'stop' }),
      restart: () => act('restart'),
      profile: () => act('profile'),
      askForProfile: canAsk
        ? number => model.send({ kind: 'profile_of', number })
        : undefined,
      askForSamples: canAsk
        ? first => model.send({ kind: 'samples', first })
        : undefined
    });
    panel.show({ ...traitsOf(model), samples, profile });
    panels.add(panel);
    const hello = () => model.send({ kind: 'hello' });
    hello();
    const again = setTimeout(hello, HELLO_AGAIN_MS);
    return () => {
      clearTimeout(again);
      panels.delete(panel);
      panel.dispose();
    };
  }

  return { initialize, render };
};

function traitsOf(model: IWidgetModel) {
  return {
    state: model.get('state') ?? {},
    log: model.get('log') ?? '',
    notice: model.get('notice') ?? null
  };
}
