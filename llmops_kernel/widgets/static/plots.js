// One uPlot chart: its lines, its axes, zoom and pan by mouse and keys, and what marks it.

const COLORS = [
  ["--jp-brand-color1", "#1976d2"],
  ["--jp-warn-color1", "#e65100"],
  ["--jp-success-color1", "#388e3c"],
  ["--jp-error-color1", "#d32f2f"],
];
const PLOT_HEIGHT = 180;
const KEYS = "Arrow keys read the values, Shift and arrow keys move a zoomed chart, + and - zoom, 0 shows all.";

function shortNumber(value) {
  if (value == null || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)} k`;
  if (size !== 0 && size < 1e-3) return value.toExponential(1);
  return String(+value.toPrecision(4));
}

function axis(host, more) {
  return {
    stroke: () => cssColor(host, "--jp-ui-font-color2", "#666"),
    grid: { stroke: "#80808040", width: 1 }, // Grey enough for both themes.
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
    ...more,
  };
}

/** The value under the cursor, or the last known before it; without a cursor the last one. */
function legendValue(unit, words = shortNumber) {
  return (plot, _, series, index) => {
    const shown = valueAt(plot.data[series], index);
    return shown == null ? "–" : words(shown) + unit;
  };
}

/** @param {{label: string, color: number, faint?: boolean, dots?: boolean}} line */
function seriesOf(host, { label, color, faint, dots }, unit) {
  const [name, fallback] = COLORS[color % COLORS.length];
  const stroke = () => cssColor(host, name, fallback);
  return {
    label,
    stroke,
    width: 1.5,
    alpha: faint ? 0.3 : 1, // What is smoothed stays visible behind its curve.
    spanGaps: true,
    points: dots ? { show: true, size: 7, fill: stroke } : { show: (plot) => plot.data[0].length <= 2, size: 5 },
    value: legendValue(unit),
  };
}

/** Speeds start at zero, so that noise does not look like a change; a loss may be zoomed. */
const fromZero = (_, low, high) => [0, low == null ? 1 : high * 1.1 || 1];

function valueRange(_, low, high) {
  if (low == null) return [0, 1];
  const pad = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad];
}

const logRange = (_, low, high) => (low == null ? [0.1, 1] : uPlot.rangeLog(low, high, 10, false));

/** A log axis leaves out the labels of most of its lines: they come as null. */
const ticksOf = (words) => (_, ticks) => ticks.map((tick) => (tick == null ? "" : words(tick)));

/** A run of three steps must not show a "step 1.5". */
function wholeStep(value) {
  return Number.isInteger(value) ? shortNumber(value) : "";
}

/** Vertical lines, such as where a run was restarted; each may have a colour of its own. */
function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const { x, bad, color } of marks) {
    const at = plot.valToPos(x, "x", true);
    if (at < bbox.left || at > bbox.left + bbox.width) continue;
    ctx.strokeStyle = color ?? cssColor(plot.root, bad ? "--jp-error-color1" : "--jp-ui-font-color2", bad ? "#d32f2f" : "#666");
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/**
 * @param {{x: {key: string, label: string}, lines: object[], unit: string, fromZero: boolean,
 *   log: boolean}} plan
 * @param {{syncKey: string, range: () => [number, number], zoom: (range) => void, marks: () => object[]}} shown
 *   what all charts of a run have in common
 */
function makePlot(host, plan, shown) {
  const { x, lines, unit } = plan;
  const words = x.key === "step" ? (step) => step.toLocaleString("en") : shortNumber;
  const options = {
    width: Math.max(host.clientWidth, 160),
    height: PLOT_HEIGHT,
    cursor: { sync: { key: shown.syncKey }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
    scales: {
      x: { time: false, range: () => shown.range() },
      y: plan.log ? { distr: 3, log: 10, range: logRange } : { range: plan.fromZero ? fromZero : valueRange },
    },
    axes: [
      axis(host, { size: 30, values: ticksOf(x.key === "step" ? wholeStep : shortNumber) }),
      axis(host, { size: 58, values: ticksOf((tick) => shortNumber(tick) + unit) }),
    ],
    legend: { live: true },
    hooks: { setSelect: [(plot) => zoomIntoSelection(plot, shown)], draw: [(plot) => drawMarks(plot, shown.marks())] },
    series: [{ label: x.label, value: legendValue("", words) }, ...lines.map((line) => seriesOf(host, line, unit))],
  };
  const plot = new uPlot(options, options.series.map(() => []), host);
  followMouse(plot, shown);
  return plot;
}

function zoomIntoSelection(plot, shown) {
  const { left, width } = plot.select;
  if (width < 3) return;
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  shown.zoom([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
}

/** Wheel with Ctrl or Cmd zooms, with Shift moves; dragging with Shift moves. A wheel alone scrolls the page. */
function followMouse(plot, shown) {
  plot.over.addEventListener("wheel", (event) => {
    const { ctrlKey, metaKey, shiftKey, deltaX, deltaY } = event;
    if (!ctrlKey && !metaKey && !shiftKey) return;
    event.preventDefault();
    if (shiftKey) shown.pan(Math.sign(deltaX || deltaY) * 0.1);
    else shown.scale(deltaY > 0 ? 1.25 : 0.8, plot.posToVal(event.offsetX, "x"));
  }, { passive: false });
  plot.over.addEventListener("dblclick", () => shown.zoom(null));
  plot.over.addEventListener("mousedown", (event) => {
    if (!event.shiftKey || event.button !== 0) return;
    event.stopImmediatePropagation(); // uPlot would begin a selection.
    event.preventDefault();
    drag(event.clientX, plot, shown);
  }, { capture: true });
}

function drag(begin, plot, shown) {
  let last = begin;
  const move = (event) => {
    shown.pan((last - event.clientX) / Math.max(plot.over.clientWidth, 1));
    last = event.clientX;
  };
  const end = () => {
    document.removeEventListener("mousemove", move);
    document.removeEventListener("mouseup", end);
  };
  document.addEventListener("mousemove", move);
  document.addEventListener("mouseup", end);
}

/** What a key does to a chart; false for a key that is not a chart's. */
function pressed({ key, shiftKey, ctrlKey, metaKey, altKey }, plot, shown) {
  if (ctrlKey || metaKey || altKey) return false;
  const [low, high] = shown.range();
  const arrow = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (arrow) shiftKey ? shown.pan(arrow * 0.1) : moveCursor(plot, arrow);
  else if (key === "+" || key === "=") shown.scale(0.8, (low + high) / 2);
  else if (key === "-") shown.scale(1.25, (low + high) / 2);
  else if (key === "0" || key === "Escape") shown.zoom(null);
  else return false;
  return true;
}

/** To the next row, or to the next pixel where rows are closer. */
function moveCursor(plot, direction) {
  const [x] = plot.data;
  const [first, last] = plot.series[0].idxs ?? [0, x.length - 1];
  const stride = Math.max(1, Math.floor((last - first) / Math.max(plot.over.clientWidth, 1)));
  const from = plot.cursor.idx ?? (direction > 0 ? first - stride : last + stride);
  const index = Math.max(first, Math.min(from + direction * stride, last));
  plot.setCursor({ left: plot.valToPos(x[index], "x"), top: plot.over.clientHeight / 2 }, true, true);
}

/** A chart, or a text instead of it while there is nothing to draw. */
class Chart {
  constructor(shown) {
    this.shown = shown;
    // Keys of a chart are not shortcuts of the page around it.
    this.host = h("div.plot", {
      role: "group", tabindex: 0, "aria-description": KEYS, title: KEYS, "data-lm-suppress-shortcuts": "true",
      onkeydown: (event) => {
        if (!this.plot || !pressed(event, this.plot, shown)) return;
        event.preventDefault();
        event.stopPropagation();
      },
    });
    this.empty = h("p.empty");
    this.note = h("p.chartnote");
    this.element = h("div.plotbox", {}, this.host, this.empty, this.note);
    this.plot = null;
    this.made = "";
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.element);
  }

  /** @param {{data: any[], text: string, note: string, label: string}} plan see `makePlot` too */
  show(plan) {
    const empty = !plan.data.slice(1).some((column) => column.some((value) => value != null));
    this.empty.textContent = empty ? plan.text : "";
    this.note.textContent = plan.note;
    this.host.setAttribute("aria-label", plan.label);
    this.element.classList.toggle("llmops-is-empty", empty);
    if (empty) return;
    const { x, lines, unit, log } = plan;
    const made = JSON.stringify([x.key, x.label, lines, unit, log, plan.fromZero]);
    if (made !== this.made) this.clear();
    this.made = made;
    this.plot ??= makePlot(this.host, plan, this.shown);
    this.plot.setData(plan.data);
  }

  /** The zoom has changed. */
  rescale() {
    if (!this.plot) return;
    const [min, max] = this.shown.range();
    this.plot.setScale("x", { min, max });
  }

  resize() {
    const width = this.host.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: PLOT_HEIGHT });
  }

  clear() {
    this.plot?.destroy();
    this.plot = null;
  }

  destroy() {
    this.observer.disconnect();
    this.clear();
  }
}
