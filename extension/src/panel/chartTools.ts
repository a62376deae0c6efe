import { button, h, onChange } from './dom';
import { IChartChoice, toCsv } from './numbers';
import { Chart } from './plot';
import { RunData } from './runData';

/** Stores a user's choices for charts: in Lab's settings, else in this browser. */
export interface IChartStore {
  /** The newest choice, wherever it was made; the charts check it. */
  read(): unknown;
  keep(choice: IChartChoice): void;
}

const CHARTS_KEY = 'llmops-charts';

/** The store of a page that has no settings. */
export function browserStore(): IChartStore {
  let unsaved: IChartChoice | null = null; // Holds until the page is closed.
  return {
    read() {
      try {
        return (
          unsaved ?? JSON.parse(localStorage.getItem(CHARTS_KEY) ?? 'null')
        );
      } catch {
        return null; // The browser stores nothing, or something else.
      }
    },
    keep(choice) {
      try {
        localStorage.setItem(CHARTS_KEY, JSON.stringify(choice));
        unsaved = null;
      } catch {
        unsaved = choice;
      }
    }
  };
}

/** The choices, and what can be chosen. */
export interface IOffer {
  choice: IChartChoice;
  /** `known` is false for one that the rows have no numbers for. */
  axes: readonly { key: string; label: string; known: boolean }[];
  /** The charts that can be added. */
  charts: readonly { key: string; title: string }[];
  /** False where rows were left out. */
  whole: boolean;
  isZoomed: boolean;
}

interface IActions {
  /** Change some of the choices. */
  choose(change: (choice: IChartChoice) => Partial<IChartChoice>): void;
  showAll(): void;
  csv(): void;
}

/** The line of choices above the charts. */
export class ChartTools {
  constructor(private actions: IActions) {
    const { choose } = actions;
    const number = () => Number(this._smoothing.value);
    this._x = h('select.select', {
      onchange: () => choose(() => ({ x: this._x.value }))
    });
    this._smoothing = h('input', {
      type: 'range',
      min: 0,
      max: 0.99,
      step: 0.01,
      oninput: () => choose(() => ({ smoothing: number() }))
    });
    this._log = h('input', {
      type: 'checkbox',
      onchange: () => choose(() => ({ log: this._log.checked }))
    });
    this._more = h('details.more', {}, h('summary', {}, 'Charts'), this._list);
    this._showAll = button('Show all', actions.showAll);
    this._csv = button('CSV', actions.csv);
    this.element = h(
      'div.charttools',
      { role: 'group', 'aria-label': 'Chart settings' },
      h('label', {}, 'x axis ', this._x),
      h(
        'label',
        { title: 'Exponential moving average, as in TensorBoard and W&B' },
        'smoothing ',
        this._smoothing,
        this._weight
      ),
      h('label', {}, this._log, ' log scale'),
      this._more,
      this._showAll,
      this._csv
    );
  }

  readonly element: HTMLElement;

  update({ choice, axes, charts, whole, isZoomed }: IOffer): void {
    this._csv.title = whole
      ? 'All numbers of the charts'
      : 'The points that are drawn; run.metrics() has every step';
    this.fillX(axes);
    this.fillMore(charts.map(({ key, title }) => ({ key, title })));
    this._x.value = choice.x;
    if (Number(this._smoothing.value) !== choice.smoothing) {
      this._smoothing.value = String(choice.smoothing);
    }
    this._weight.textContent = choice.smoothing
      ? ` ${choice.smoothing.toFixed(2)}`
      : ' off';
    this._log.checked = choice.log;
    this._more.hidden = charts.length === 0;
    for (const box of this._list.querySelectorAll('input')) {
      box.checked = choice.more.includes(box.dataset.key ?? '');
    }
    this._showAll.disabled = !isZoomed;
  }

  private fillX = onChange<IOffer['axes']>(axes => {
    const options = axes.map(({ key, label, known }) =>
      h(
        'option',
        { value: key, disabled: !known },
        known ? label : `${label} (not known)`
      )
    );
    this._x.replaceChildren(...options);
  });

  private fillMore = onChange<IOffer['charts']>(charts => {
    const labels = charts.map(({ key, title }) => {
      const toggle = () =>
        this.actions.choose(({ more }) => ({ more: toggled(more, key) }));
      const box = h('input', {
        type: 'checkbox',
        'data-key': key,
        onchange: toggle
      });
      return h('label', {}, box, ` ${title}`);
    });
    this._list.replaceChildren(...labels);
  });

  private _x: HTMLSelectElement;
  private _smoothing: HTMLInputElement;
  private _weight = h('output');
  private _log: HTMLInputElement;
  private _list = h('div.morelist', {
    role: 'group',
    'aria-label': 'Further charts'
  });
  private _more: HTMLElement;
  private _showAll: HTMLButtonElement;
  private _csv: HTMLButtonElement;
}

function toggled(list: readonly string[], item: string): string[] {
  return list.includes(item)
    ? list.filter(other => other !== item)
    : [...list, item];
}

export function download(name: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  const link = h('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/**
 * All rows as they came, or the points that stand for them, in base units: what is smoothed or
 * scaled is only drawn.
 */
export function downloadCsv(
  data: RunData,
  runId: string,
  whole: boolean
): void {
  const names = data.columns.map(({ name }) => name);
  const text = toCsv(
    names,
    names.map(name => data.values(name))
  );
  const part = whole ? '' : '-drawn-points';
  download(`${runId}${part}.csv`, new Blob([text], { type: 'text/csv' }));
}

/** The chart on the panel's own background, below its title and the names of its lines. */
export function downloadPng(chart: Chart, title: string, name: string): void {
  const { plot, element } = chart;
  const canvas = document.createElement('canvas');
  const ctx = canvas.getContext('2d');
  if (!plot || !ctx) {
    return;
  }
  const source = plot.ctx.canvas;
  const scale = source.width / plot.width;
  const head = 44 * scale;
  canvas.width = source.width;
  canvas.height = source.height + head;
  const style = getComputedStyle(element.closest('.llmops-run') ?? element);
  ctx.fillStyle = style.backgroundColor;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.font = `${12 * scale}px system-ui, sans-serif`;
  ctx.fillStyle = style.color;
  ctx.fillText(title, 8 * scale, 16 * scale);
  let left = 8 * scale;
  plot.series.forEach(({ label, stroke }, index) => {
    if (index > 0) {
      const text = String(label);
      ctx.fillStyle =
        typeof stroke === 'function' ? stroke(plot, index) : (stroke ?? '');
      ctx.fillText(text, left, 34 * scale);
      left += ctx.measureText(text).width + 14 * scale;
    }
  });
  ctx.drawImage(source, 0, head);
  canvas.toBlob(blob => blob && download(name, blob));
}
