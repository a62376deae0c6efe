// Two uPlot charts over the optimizer steps: loss, and one of MFU, tokens/s, memory, step time.

const GIB = 2 ** 30;
const SPEEDS = [
  { key: "mfu", tab: "MFU", series: [["mfu", "MFU"]], scale: 100, unit: " %" },
  { key: "tokens", tab: "Tokens/s", series: [["tokens_per_second", "tokens/s"]], scale: 1, unit: "" },
  {
    key: "memory",
    tab: "Memory",
    series: [["peak_memory_bytes", "device peak"], ["host_memory_bytes", "host, first worker"]],
    scale: 1 / GIB,
    unit: " GiB",
  },
  { key: "time", tab: "Step time", series: [["step_time_s", "step time"]], scale: 1, unit: " s" },
];
const COLORS = [
  ["--jp-brand-color1", "#1976d2"],
  ["--jp-warn-color1", "#e65100"],
];

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

function lineSeries(host, index, label, unit) {
  const [name, fallback] = COLORS[index % COLORS.length];
  return {
    label,
    stroke: () => cssColor(host, name, fallback),
    width: 1.5,
    spanGaps: true,
    points: { show: (plot) => plot.data[0].length <= 2, size: 5 },
    value: legendValue(unit),
  };
}

/** The value under the cursor; without a cursor the last one. */
function legendValue(unit, words = shortNumber) {
  return (plot, value, series, index) => {
    const shown = index == null ? plot.data[series].findLast((item) => item != null) : value;
    return shown == null ? "–" : words(shown) + unit;
  };
}

function pointSeries(host, label) {
  const color = () => cssColor(host, COLORS[1][0], COLORS[1][1]);
  return {
    label,
    stroke: color,
    paths: () => null,
    points: { show: true, size: 7, fill: color },
    value: legendValue(""),
  };
}

function stepRange(_, low, high) {
  if (low == null) return [0, 1];
  return low === high ? [low - 1, high + 1] : [low, high];
}

/** Speeds start at zero, so that noise does not look like a change; a loss may be zoomed. */
const fromZero = (_, low, high) => [0, low == null ? 1 : high * 1.1 || 1];

function valueRange(_, low, high) {
  if (low == null) return [0, 1];
  const pad = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad];
}

function makePlot(host, series, { unit, range, syncKey }) {
  const options = {
    width: Math.max(host.clientWidth, 160),
    height: 180,
    cursor: { sync: { key: syncKey }, drag: { x: true, y: false }, points: { size: 6 } },
    scales: { x: { time: false, range: stepRange }, y: { range } },
    axes: [
      axis(host, { size: 30, values: (_, ticks) => ticks.map(wholeStep) }),
      axis(host, { size: 58, values: (_, ticks) => ticks.map((tick) => shortNumber(tick) + unit) }),
    ],
    legend: { live: true },
    series: [{ label: "step", value: legendValue("", (step) => step.toLocaleString("en")) }, ...series],
  };
  return new uPlot(options, series.map(() => []).concat([[]]), host);
}

/** A run of three steps must not show a "step 1.5". */
function wholeStep(value) {
  return Number.isInteger(value) ? shortNumber(value) : "";
}

/** A chart with a text in its place while there is nothing to draw. */
class Chart {
  constructor(label) {
    this.host = h("div.plot", { role: "img", "aria-label": label });
    this.empty = h("p.empty");
    this.element = h("div.plotbox", {}, this.host, this.empty);
    this.plot = null;
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.element);
  }

  /** @param {string} text shown when `data` has no value */
  show(make, data, text) {
    const empty = !data.slice(1).some((column) => column.some((value) => value != null));
    this.empty.textContent = empty ? text : "";
    this.element.classList.toggle("llmops-is-empty", empty);
    if (empty) return;
    this.plot ??= make(this.host);
    this.plot.setData(data);
  }

  resize() {
    const width = this.host.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: 180 });
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

/** The two charts side by side; `model` is the closure's shared data of one run. */
function createCharts(shared) {
  const syncKey = `llmops-${Math.random()}`;
  const loss = new Chart("Loss against the optimizer step");
  const speed = new Chart("Speed against the optimizer step");
  let chosen = null;

  const tabs = SPEEDS.map(({ key, tab }) =>
    h("button.tab", { type: "button", role: "tab", onclick: () => choose(key) }, tab),
  );

  function choose(key) {
    chosen = key;
    speed.clear();
    draw();
  }

  /** Until somebody chooses, the first kind that has numbers: a CPU without a peak has no MFU. */
  function current() {
    const withNumbers = SPEEDS.find(({ series }) => series.some(([name]) => shared.columns.has(name)));
    return SPEEDS.find(({ key }) => key === chosen) ?? withNumbers ?? SPEEDS[0];
  }

  let drawn = null;
  function draw() {
    const { columns, state } = shared;
    element.hidden = Boolean(state.no_steps);
    if (element.hidden) return;
    const waiting = state.waiting_text || "No numbers yet.";
    loss.show(
      (host) =>
        makePlot(host, [lineSeries(host, 0, "loss", ""), pointSeries(host, "eval loss")], {
          unit: "", range: valueRange, syncKey,
        }),
      withEvals(columns, state.evals ?? []),
      waiting,
    );
    const kind = current();
    if (drawn !== kind) speed.clear();
    drawn = kind;
    const used = kind.series.filter(([name]) => columns.has(name));
    speed.show(
      (host) =>
        makePlot(host, used.map(([, label], i) => lineSeries(host, i, label, kind.unit)), {
          unit: kind.unit, range: fromZero, syncKey,
        }),
      [columns.column("step"), ...used.map(([name]) => columns.column(name, kind.scale))],
      columns.length ? noNumbers(kind.key) : waiting,
    );
    SPEEDS.forEach(({ key }, i) => tabs[i].setAttribute("aria-selected", String(key === kind.key)));
  }

  const card = (title, body) => h("div.card", {}, h("div.cardhead", {}, title), body);
  const element = h(
    "div.charts",
    {},
    card(h("span.cardtitle", {}, "Loss"), loss.element),
    card(h("div.tabs", { role: "tablist", "aria-label": "Speed chart" }, ...tabs), speed.element),
  );
  // A legend keeps the colours it was made with, so a new theme needs new charts.
  const redraw = () => {
    [loss, speed].forEach((chart) => chart.clear());
    draw();
  };
  const destroy = () => [loss, speed].forEach((chart) => chart.destroy());
  return { element, draw, redraw, destroy };
}

function noNumbers(key) {
  if (key === "mfu") return "MFU is not known: no peak speed for this device.";
  if (key === "memory") return "Memory is not known for this run.";
  return "No numbers yet.";
}
