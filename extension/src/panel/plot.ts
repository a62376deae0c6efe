import uPlot from 'uplot';

import { cssColor, h } from './dom';
import { IXAxis, Range, panned, valueAt, zoomed } from './numbers';

/** The x values, then those of each line. */
export type PlotData = uPlot.AlignedData;

const COLORS = [
  ['--jp-brand-color1', '#1976d2'],
  ['--jp-warn-color1', '#e65100'],
  ['--jp-success-color1', '#388e3c'],
  ['--jp-error-color1', '#d32f2f']
];
const PLOT_HEIGHT = 180;
const KEYS =
  'Arrow keys read the values, Shift and arrow keys move a zoomed chart, + and - zoom, 0 shows all.';

function shortNumber(value: number | null | undefined): string {
  if (value == null || Number.isNaN(value)) {
    return '–';
  }
  const size = Math.abs(value);
  if (size >= 1e6) {
    return `${+(value / 1e6).toPrecision(3)} M`;
  }
  if (size >= 1e4) {
    return `${+(value / 1e3).toPrecision(3)} k`;
  }
  if (size !== 0 && size < 1e-3) {
    return value.toExponential(1);
  }
  return String(+value.toPrecision(4));
}

function axis(host: HTMLElement, more: uPlot.Axis): uPlot.Axis {
  return {
    stroke: () => cssColor(host, '--jp-ui-font-color2', '#666'),
    grid: { stroke: '#80808040', width: 1 }, // Grey enough for both themes.
    ticks: { show: false },
    font: '11px system-ui, sans-serif',
    ...more
  };
}

/** The value under the cursor, or the last known before it; without a cursor the last one. */
function legendValue(
  unit: string,
  text: (value: number) => string = shortNumber
): uPlot.Series.Value {
  return (plot, _, series, index) => {
    const value = valueAt(plot.data[series], index);
    return value === null ? '–' : text(value) + unit;
  };
}

/** A line of a plot. */
export interface ILine {
  label: string;
  /** Number of its colour in the theme, or the colour itself. */
  color: number | string;
  faint?: boolean;
  dots?: boolean;
}

function seriesOf(
  host: HTMLElement,
  { label, color, faint, dots }: ILine,
  unit: string
): uPlot.Series {
  let stroke = () => String(color);
  if (typeof color === 'number') {
    const [name, fallback] = COLORS[color % COLORS.length];
    stroke = () => cssColor(host, name, fallback);
  }
  return {
    label,
    stroke,
    width: 1.5,
    alpha: faint ? 0.3 : 1, // What is smoothed stays visible behind its curve.
    spanGaps: true,
    points: dots
      ? { show: true, size: 7, fill: stroke }
      : { show: isSparse, size: 5 },
    value: legendValue(unit)
  };
}

/** True if so few points are known that no line would be seen of them. */
export function isSparse(plot: Pick<uPlot, 'data'>, series: number): boolean {
  const values = plot.data[series];
  let known = 0;
  for (let index = 0; index < values.length && known <= 2; index++) {
    known += values[index] == null ? 0 : 1;
  }
  return known <= 2;
}

/** Speeds start at zero, so that noise does not look like a change; a loss may be zoomed. */
const fromZero: uPlot.Range.Function = (_, low, high) => [
  0,
  low == null ? 1 : high * 1.1 || 1
];

const valueRange: uPlot.Range.Function = (_, low, high) => {
  if (low == null) {
    return [0, 1];
  }
  const pad = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad];
};

const logRange: uPlot.Range.Function = (_, low, high) =>
  low == null ? [0.1, 1] : uPlot.rangeLog(low, high, 10, false);

/** A log axis leaves out the labels of most of its lines: they come as null. */
function ticksOf(text: (value: number) => string): uPlot.Axis.DynamicValues {
  return (_, ticks: (number | null)[]) =>
    ticks.map(tick => (tick === null ? '' : text(tick)));
}

/** A run of three steps must not show a "step 1.5". */
function wholeStep(value: number): string {
  return Number.isInteger(value) ? shortNumber(value) : '';
}

/** A vertical line, such as where a run was restarted. */
export interface IMark {
  x: number;
  bad: boolean;
  /** By whether it is bad, where there is none. */
  color?: string;
}

/** A part of the x axis, such as steps that were profiled. */
export type Band = Range;

function drawBands(plot: uPlot, bands: readonly Band[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.globalAlpha = 0.18;
  ctx.fillStyle = cssColor(plot.root, '--jp-warn-color1', '#e65100');
  for (const [begin, end] of bands) {
    const [left, right] = [begin, end].map(x => plot.valToPos(x, 'x', true));
    const width = Math.max(right - left, 2 * devicePixelRatio);
    ctx.fillRect(left, bbox.top, width, bbox.height);
  }
  ctx.restore();
}

function drawMarks(plot: uPlot, marks: readonly IMark[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const { x, bad, color } of marks) {
    const left = plot.valToPos(x, 'x', true);
    if (left < bbox.left || left > bbox.left + bbox.width) {
      continue;
    }
    ctx.strokeStyle =
      color ??
      cssColor(
        plot.root,
        bad ? '--jp-error-color1' : '--jp-ui-font-color2',
        bad ? '#d32f2f' : '#666'
      );
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** The zoom of all charts of a run, or of a page: they show the same part. */
export class Zoom {
  constructor(
    private changed: () => void,
    /** Charts with the same key share their cursor. */
    readonly syncKey = `llmops-${Math.random()}`
  ) {}

  /** The whole range of the x axis. */
  bounds: Range = [0, 1];
  marks: readonly IMark[] = [];
  /** Steps that were profiled. */
  bands: readonly Band[] = [];

  get isZoomed(): boolean {
    return this._part !== null;
  }

  get range(): Range {
    return this._part ?? this.bounds;
  }

  /** Show all, at the next drawing. */
  reset(): void {
    this._part = null;
  }

  /** Show a part of the x axis; all of it for null. */
  show(part: Range | null): void {
    this._part = part;
    this.changed();
  }

  scale(factor: number, at: number): void {
    this.show(zoomed(this.range, factor, at, this.bounds));
  }

  pan(share: number): void {
    if (this._part) {
      this.show(panned(this._part, share, this.bounds));
    }
  }

  private _part: Range | null = null;
}

/** All that a chart draws. */
export interface IPlan {
  /** Its name for screen readers. */
  label: string;
  data: PlotData;
  lines: readonly ILine[];
  x: IXAxis;
  unit: string;
  log: boolean;
  fromZero: boolean;
  /** Says what is not drawn. */
  note: string;
  /** In its place while there are no numbers. */
  text: string;
}

function makePlot(
  host: HTMLElement,
  plan: IPlan,
  zoom: Zoom,
  height: number
): uPlot {
  const { x, lines, unit } = plan;
  const isStep = x.key === 'step';
  const xText = isStep
    ? (step: number) => step.toLocaleString('en')
    : shortNumber;
  const isProfiled = (value: number) =>
    zoom.bands.some(([begin, end]) => begin < value && value <= end);
  const named = (value: number) =>
    isProfiled(value) ? `${xText(value)} (profiled)` : xText(value);
  const yRange = plan.fromZero ? fromZero : valueRange;
  const options: uPlot.Options = {
    width: Math.max(host.clientWidth, 160),
    height,
    cursor: {
      sync: { key: zoom.syncKey },
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 }
    },
    scales: {
      x: { time: false, range: () => zoom.range },
      y: plan.log ? { distr: 3, log: 10, range: logRange } : { range: yRange }
    },
    axes: [
      axis(host, {
        size: 30,
        values: ticksOf(isStep ? wholeStep : shortNumber)
      }),
      axis(host, {
        size: 58,
        values: ticksOf(tick => shortNumber(tick) + unit)
      })
    ],
    legend: { live: true },
    hooks: {
      setSelect: [plot => zoomIntoSelection(plot, zoom)],
      drawClear: [plot => drawBands(plot, zoom.bands)],
      draw: [plot => drawMarks(plot, zoom.marks)]
    },
    series: [
      { label: x.label, value: legendValue('', named) },
      ...lines.map(line => seriesOf(host, line, unit))
    ]
  };
  const empty = options.series.map(() => []) as unknown as PlotData;
  const plot = new uPlot(options, empty, host);
  followMouse(plot, zoom);
  return plot;
}

function zoomIntoSelection(plot: uPlot, zoom: Zoom): void {
  const { left, width } = plot.select;
  if (width >= 3) {
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    zoom.show([plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x')]);
  }
}

/** Wheel with Ctrl or Cmd zooms, with Shift moves; dragging with Shift moves. A wheel alone scrolls the page. */
function followMouse(plot: uPlot, zoom: Zoom): void {
  const { over } = plot;
  const onWheel = (event: WheelEvent) => {
    const { ctrlKey, metaKey, shiftKey, deltaX, deltaY } = event;
    if (!ctrlKey && !metaKey && !shiftKey) {
      return;
    }
    event.preventDefault();
    if (shiftKey) {
      zoom.pan(Math.sign(deltaX || deltaY) * 0.1);
    } else {
      zoom.scale(deltaY > 0 ? 1.25 : 0.8, plot.posToVal(event.offsetX, 'x'));
    }
  };
  const onMouseDown = (event: MouseEvent) => {
    if (event.shiftKey && event.button === 0) {
      event.stopImmediatePropagation(); // uPlot would begin a selection.
      event.preventDefault();
      drag(event.clientX, plot, zoom);
    }
  };
  over.addEventListener('wheel', onWheel, { passive: false });
  over.addEventListener('dblclick', () => zoom.show(null));
  over.addEventListener('mousedown', onMouseDown, { capture: true });
}

function drag(begin: number, plot: uPlot, zoom: Zoom): void {
  let last = begin;
  const move = (event: MouseEvent) => {
    zoom.pan((last - event.clientX) / Math.max(plot.over.clientWidth, 1));
    last = event.clientX;
  };
  const end = () => {
    document.removeEventListener('mousemove', move);
    document.removeEventListener('mouseup', end);
  };
  document.addEventListener('mousemove', move);
  document.addEventListener('mouseup', end);
}

/** Do what a key does to a chart; false for a key that is not a chart's. */
function pressed(
  { key, shiftKey, ctrlKey, metaKey, altKey }: KeyboardEvent,
  plot: uPlot,
  zoom: Zoom
): boolean {
  if (ctrlKey || metaKey || altKey) {
    return false;
  }
  const [low, high] = zoom.range;
  if (key === 'ArrowLeft' || key === 'ArrowRight') {
    const direction = key === 'ArrowLeft' ? -1 : 1;
    if (shiftKey) {
      zoom.pan(direction * 0.1);
    } else {
      moveCursor(plot, direction);
    }
  } else if (key === '+' || key === '=') {
    zoom.scale(0.8, (low + high) / 2);
  } else if (key === '-') {
    zoom.scale(1.25, (low + high) / 2);
  } else if (key === '0' || key === 'Escape') {
    zoom.show(null);
  } else {
    return false;
  }
  return true;
}

/** An argument that uPlot's types leave out: the cursor of the other charts moves too. */
interface ISyncedPlot extends uPlot {
  setCursor(
    place: { left: number; top: number },
    fireHook?: boolean,
    isSynced?: boolean
  ): void;
}

/** To the next row, or to the next pixel where rows are closer. */
function moveCursor(plot: uPlot, direction: number): void {
  const [x] = plot.data;
  const [first, last] = plot.series[0].idxs ?? [0, x.length - 1];
  const width = Math.max(plot.over.clientWidth, 1);
  const stride = Math.max(1, Math.floor((last - first) / width));
  const from =
    plot.cursor.idx ?? (direction > 0 ? first - stride : last + stride);
  const index = Math.max(first, Math.min(from + direction * stride, last));
  const left = plot.valToPos(x[index], 'x');
  const top = plot.over.clientHeight / 2;
  (plot as ISyncedPlot).setCursor({ left, top }, true, true);
}

/**
 * A chart, or a text instead of it while there is nothing to draw.
 */
export class Chart {
  constructor(
    private zoom: Zoom,
    private height = PLOT_HEIGHT
  ) {
    const onKey = (event: KeyboardEvent) => {
      if (this.plot && pressed(event, this.plot, zoom)) {
        event.preventDefault();
        event.stopPropagation();
      }
    };
    this._host = h('div.plot', {
      role: 'group',
      tabindex: 0,
      'aria-description': KEYS,
      title: KEYS,
      // Keys of a chart are not shortcuts of the page around it.
      'data-lm-suppress-shortcuts': 'true',
      onkeydown: onKey
    });
    this.element = h('div.plotbox', {}, this._host, this._empty, this._note);
    this._observer.observe(this.element);
  }

  readonly element: HTMLElement;
  /** Null while there is nothing to draw. */
  plot: uPlot | null = null;

  show(plan: IPlan): void {
    const { data, x, lines, unit, log } = plan;
    const isEmpty = !data.slice(1).some(hasNumbers);
    this._empty.textContent = isEmpty ? plan.text : '';
    this._note.textContent = plan.note;
    this._host.setAttribute('aria-label', plan.label);
    this.element.classList.toggle('llmops-is-empty', isEmpty);
    if (isEmpty) {
      return;
    }
    const look = JSON.stringify([
      x.key,
      x.label,
      lines,
      unit,
      log,
      plan.fromZero
    ]);
    if (look !== this._look) {
      this.clear();
    }
    this._look = look;
    this.plot ??= makePlot(this._host, plan, this.zoom, this.height);
    this.plot.setData(data);
  }

  /** Follow the zoom, without reading the data again. */
  rescale(): void {
    const [min, max] = this.zoom.range;
    this.plot?.setScale('x', { min, max });
  }

  /** Forget the plot: the next one is made anew. */
  clear(): void {
    this.plot?.destroy();
    this.plot = null;
  }

  dispose(): void {
    this._observer.disconnect();
    this.clear();
  }

  private resize(): void {
    const width = this._host.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width) {
      this.plot.setSize({ width, height: this.height });
    }
  }

  private _host: HTMLElement;
  private _empty = h('p.empty');
  private _note = h('p.chartnote');
  private _look = '';
  private _observer = new ResizeObserver(() => this.resize());
}

function hasNumbers(column: PlotData[number] | undefined): boolean {
  for (let row = 0; row < (column?.length ?? 0); row++) {
    if (column?.[row] != null) {
      return true;
    }
  }
  return false;
}
