import { RunColumn } from '../wire';
import {
  ChartTools,
  IChartStore,
  IOffer,
  downloadCsv,
  downloadPng
} from './chartTools';
import { button, h } from './dom';
import {
  IChartChoice,
  IXAxis,
  Point,
  Range,
  X_AXES,
  atSteps,
  chartChoice,
  xValues
} from './numbers';
import { Chart, IPlan, Zoom } from './plot';
import { RunData } from './runData';
import { IPanelState } from './state';
import {
  IFrame,
  ITab,
  capital,
  curveTab,
  drawnOf,
  evalTabs,
  noNumbers,
  tabsOf
} from './tabs';

function boundsOf(x: ArrayLike<number>, points: readonly Point[]): Range {
  const ends = [x[0], x[x.length - 1], points[0]?.[0], points.at(-1)?.[0]];
  const known = ends.filter(value => value != null);
  if (known.length === 0) {
    return [0, 1];
  }
  const [low, high] = [Math.min(...known), Math.max(...known)];
  return low === high ? [low - 1, high + 1] : [low, high];
}

/** A chart in its frame, with a button that saves it as a picture. */
class ChartCard {
  constructor(
    zoom: Zoom,
    private runId: () => string,
    ...heading: HTMLElement[]
  ) {
    this.chart = new Chart(zoom);
    this._png = button('PNG', () => this.save());
    this._png.classList.add('llmops-png');
    const head = h('div.cardhead', {}, ...heading, this._png);
    this.element = h('div.card', {}, head, this.chart.element);
  }

  readonly chart: Chart;
  readonly element: HTMLElement;

  draw(plan: IPlan, title: string): void {
    this._title = title;
    this._png.setAttribute('aria-label', `Download ${title} as PNG`);
    this.chart.show(plan);
  }

  dispose(): void {
    this.chart.dispose();
    this.element.remove();
  }

  private save(): void {
    const id = this.runId();
    const title = this._title;
    downloadPng(this.chart, `${id}: ${title}`, `${id}-${title}.png`);
  }

  private _title = '';
  private _png: HTMLButtonElement;
}

/**
 * The charts over a run's rows: the kind's curve, one of its other columns, and those that a user
 * adds.
 */
export class Charts {
  constructor(
    private data: RunData,
    private store: IChartStore
  ) {
    const runId = () => this._state.run_id ?? '';
    this._curve = new ChartCard(this._zoom, runId, this._title);
    this._other = new ChartCard(this._zoom, runId, this._tablist);
    this._choice = chartChoice(store.read());
    this._tools = new ChartTools({
      choose: change => this.choose(change),
      showAll: () => this._zoom.show(null),
      csv: () => downloadCsv(data, runId(), this.isWhole)
    });
    this._grid.append(this._curve.element, this._other.element);
    this.element = h(
      'div.charts',
      {},
      this._tools.element,
      this._grid,
      this._notes
    );
  }

  readonly element: HTMLElement;

  draw(state: IPanelState): void {
    this._state = state;
    this.readChoice();
    this.describe();
    const { data, _curve, _other, _tabs } = this;
    this.element.hidden = Boolean(state.no_steps) || data.columns.length < 2;
    if (this.element.hidden) {
      return;
    }
    const frame = this.frame();
    const waiting = state.waiting_text || 'No numbers yet.';
    const label = this._curveLabel;
    _curve.element.hidden = !label;
    if (label) {
      this.drawCard(_curve, curveTab(state, data, label), frame, waiting);
    }
    _other.element.hidden = _tabs.length === 0;
    const tab = this.current;
    if (tab) {
      const text = data.count ? noNumbers(tab) : waiting;
      this.drawCard(_other, tab, frame, text);
    }
    [...this._tablist.children].forEach((element, index) =>
      element.setAttribute('aria-selected', String(_tabs[index] === tab))
    );
    this.drawAdded(frame);
    this._offer = this.offer();
    this.showTools();
    this._notes.textContent = notesOf(state, this._choice).join(' ');
  }

  /** A legend keeps the colours it was made with, so a new theme needs new charts. */
  redraw(): void {
    this.cards.forEach(card => card.chart.clear());
    this.draw(this._state);
  }

  dispose(): void {
    this.cards.forEach(card => card.dispose());
  }

  private get cards(): ChartCard[] {
    return [this._curve, this._other, ...this._added.values()];
  }

  private get isWhole(): boolean {
    return this._state.every_row !== false;
  }

  /** Until somebody chooses, the first tab that has numbers: a CPU without a peak has no MFU. */
  private get current(): ITab | undefined {
    const chosen = this._tabs.find(({ key }) => key === this._chosen);
    const known = this._tabs.find(({ series }) =>
      series.some(({ name }) => this.data.has(name))
    );
    return chosen ?? known ?? this._tabs[0];
  }

  /** Change some of the choices that are stored now: another panel may have changed others since. */
  private choose(
    change: (choice: IChartChoice) => Partial<IChartChoice>
  ): void {
    const newest = chartChoice(this.store.read());
    this.store.keep({ ...newest, ...change(newest) });
    this.draw(this._state);
  }

  private readChoice(): void {
    const newest = chartChoice(this.store.read());
    if (newest.x !== this._choice.x) {
      this._zoom.reset();
    }
    this._choice = newest;
  }

  /** New columns, or another curve, need new tabs and charts. */
  private describe(): void {
    const { columns } = this.data;
    const { curve } = this._state;
    if (this._columns === columns && this._curveName === curve) {
      return;
    }
    this._columns = columns;
    this._curveName = curve;
    this._curveLabel = columns.find(({ name }) => name === curve)?.label ?? '';
    this._title.textContent = capital(this._curveLabel);
    this._tabs = tabsOf(columns, curve);
    const buttons = this._tabs.map(({ key, title }) => {
      const onclick = () => {
        this._chosen = key;
        this.draw(this._state);
      };
      return h('button.tab', { type: 'button', role: 'tab', onclick }, title);
    });
    this._tablist.replaceChildren(...buttons);
    this.cards.forEach(card => card.chart.clear());
  }

  private frame(): IFrame {
    const { _state: state, _zoom: zoom, data } = this;
    const steps = data.x;
    const x = this.axis(this._choice.x) ?? this.axis('step')!;
    zoom.bounds = boundsOf(x.values, atSteps(state.evals ?? [], steps, x));
    zoom.marks = marksOf(state).map(({ step, bad }) => {
      const [[at]] = atSteps([[step, 0]], steps, x);
      return { x: at, bad };
    });
    zoom.bands = (state.profiles?.done ?? []).map(({ first, last }) => {
      const ends: Point[] = [
        [first - 1, 0],
        [last, 0]
      ];
      const [[begin], [end]] = atSteps(ends, steps, x);
      // A step is as wide as itself, also a single one.
      return x.key === 'step' ? [begin + 0.5, end + 0.5] : [begin, end];
    });
    return { x, steps, choice: this._choice };
  }

  /** An x axis; null where the rows have no numbers for it. */
  private axis(key: string): IXAxis | null {
    const { data } = this;
    const native = { label: data.columns[0].label, values: data.x };
    return xValues(key, native, name => data.values(name), this.isWhole);
  }

  private drawCard(
    card: ChartCard,
    tab: ITab,
    frame: IFrame,
    text: string
  ): void {
    const { x, choice } = frame;
    const plan: IPlan = {
      ...drawnOf(tab, this.data, frame),
      label: `${tab.title} against ${x.label}`,
      x,
      unit: tab.unit,
      log: choice.log,
      fromZero: tab.fromZero !== false,
      text
    };
    card.draw(plan, tab.title);
  }

  /** The charts that a user has added, in the order of their choice. */
  private drawAdded(frame: IFrame): void {
    const { more } = this._choice;
    const offered = this.further;
    const tabs = more.flatMap(
      key => offered.find(tab => tab.key === key) ?? []
    );
    for (const [key, card] of this._added) {
      if (!tabs.some(tab => tab.key === key)) {
        card.dispose();
        this._added.delete(key);
      }
    }
    for (const tab of tabs) {
      const card = this._added.get(tab.key) ?? this.newCard(tab.title);
      this._added.set(tab.key, card);
      this._grid.append(card.element);
      this.drawCard(card, tab, frame, noNumbers(tab));
    }
  }

  private newCard(title: string): ChartCard {
    const runId = () => this._state.run_id ?? '';
    return new ChartCard(this._zoom, runId, h('span.cardtitle', {}, title));
  }

  /** The charts that can be added. */
  private get further(): ITab[] {
    return [...this._tabs, ...evalTabs(this._state)];
  }

  private offer(): Omit<IOffer, 'isZoomed'> {
    const { columns } = this.data;
    const names = new Set(columns.map(({ name }) => name));
    const axes = X_AXES.filter(
      ({ key }) => key === 'step' || names.has(key === 'time' ? 'utc_day' : key)
    );
    return {
      choice: this._choice,
      // One without any numbers is offered and says so.
      axes: axes.map(({ key, label }) => ({
        key,
        label: key === 'step' ? columns[0].label : label,
        known: this.axis(key) !== null
      })),
      charts: this.further,
      whole: this.isWhole
    };
  }

  private showTools(): void {
    if (this._offer) {
      this._tools.update({ ...this._offer, isZoomed: this._zoom.isZoomed });
    }
  }

  /** Show the zoomed part: 100,000 rows are not read again for each move of the mouse. */
  private rescale(): void {
    this.cards.forEach(card => card.chart.rescale());
    this.showTools();
  }

  private _state: IPanelState = {};
  private _choice: IChartChoice;
  private _zoom = new Zoom(() => this.rescale());
  private _title = h('span.cardtitle');
  private _tablist = h('div.tabs', {
    role: 'tablist',
    'aria-label': 'Speed chart'
  });
  private _tools: ChartTools;
  private _offer: Omit<IOffer, 'isZoomed'> | null = null;
  private _grid = h('div.chartgrid');
  private _notes = h('p.chartnote');
  private _curve: ChartCard;
  private _other: ChartCard;
  private _added = new Map<string, ChartCard>();
  private _columns: readonly RunColumn[] | null = null;
  private _curveName: string | undefined;
  private _curveLabel = '';
  private _tabs: ITab[] = [];
  private _chosen = '';
}

/** Restarts, and where the curve stops being a number. */
export function marksOf(
  state: Pick<IPanelState, 'restart_steps' | 'nan_since'>
): { step: number; bad: boolean }[] {
  const marks = (state.restart_steps ?? []).map(step => ({ step, bad: false }));
  return state.nan_since == null
    ? marks
    : [...marks, { step: state.nan_since, bad: true }];
}

function notesOf(state: IPanelState, { smoothing }: IChartChoice): string[] {
  const restarts = (state.restart_steps ?? []).map(step =>
    step.toLocaleString('en')
  );
  const profiled = (state.profiles?.done ?? []).map(({ title }) => title);
  return [
    profiled.length
      ? `Profiled: ${profiled.slice(-5).join(', ')} (shaded); they are in no figure of speed.`
      : '',
    restarts.length
      ? `Restarted after step ${restarts.join(', ')} (dashed lines).`
      : '',
    state.nan_since == null
      ? ''
      : `The loss is not a number (NaN) since step ${state.nan_since.toLocaleString('en')}.`,
    strideNote(state),
    smoothing && state.every_row === false
      ? 'Some steps are left out here; only the shown ones are smoothed.'
      : ''
  ].filter(Boolean);
}

/** Say what a drawn point stands for where a run has more steps than a page can hold. */
function strideNote({ stride = 1 }: IPanelState): string {
  if (stride < 2) {
    return '';
  }
  const steps = stride.toLocaleString('en');
  return `Too many steps to send: up to ${steps} steps are two points, their lowest and highest values. run.metrics() has every step.`;
}
