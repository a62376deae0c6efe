// Two uPlot charts over a run's rows: the kind's curve, and one of its other columns.

const GIB = 2 ** 30;
/** How a unit of a column is drawn; a unit that is not here is drawn as it is. */
const UNITS = {
  fraction: { scale: 100, unit: " %" },
  bytes: { scale: 1 / GIB, unit: " GiB", title: "Memory" },
  seconds: { scale: 1, unit: " s" },
};

/** One tab a unit: columns of one unit share an axis, those of no known unit have one each. */
function tabsOf(columns, curve) {
  const tabs = new Map();
  for (const column of columns.slice(1)) {
    if (column.name === curve) continue;
    const drawn = UNITS[column.unit] ?? {};
    const key = UNITS[column.unit] ? column.unit : column.name;
    const tab = tabs.get(key) ?? {
      key, title: drawn.title ?? capital(column.label),
      scale: drawn.scale ?? 1, unit: drawn.unit ?? "", series: [],
    };
    tab.series.push(column);
    tabs.set(key, tab);
  }
  return [...tabs.values()];
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

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

function makePlot(host, series, { x, unit, range, syncKey }) {
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
    series: [{ label: x.label, value: legendValue("", (step) => step.toLocaleString("en")) }, ...series],
  };
  return new uPlot(options, series.map(() => []).concat([[]]), host);
}

/** A run of three steps must not show a "step 1.5". */
function wholeStep(value) {
  return Number.isInteger(value) ? shortNumber(value) : "";
}

/** A chart, or a text instead of it while there is nothing to draw. */
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

  label(text) {
    this.host.setAttribute("aria-label", text);
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

/** The two charts side by side; `shared` is the closure's shared data of one run. */
function createCharts(shared) {
  const syncKey = `llmops-${Math.random()}`;
  const curve = new Chart("");
  const other = new Chart("");
  const title = h("span.cardtitle");
  const tablist = h("div.tabs", { role: "tablist", "aria-label": "Speed chart" });
  let chosen = null;
  let drawn = null;
  let described = null;
  let tabs = [];
  let label = "";

  function choose(key) {
    chosen = key;
    draw();
  }

  /** New columns need new tabs and charts. */
  function describe() {
    const { columns, state } = shared;
    if (described === columns.all) return;
    described = columns.all;
    label = columns.all.find(({ name }) => name === state.curve)?.label ?? "";
    title.textContent = capital(label);
    curve.label(`${capital(label)} against the ${columns.x?.label ?? "row"}`);
    tabs = tabsOf(columns.all, state.curve);
    tablist.replaceChildren(...tabs.map(({ key, title: text }) =>
      h("button.tab", { type: "button", role: "tab", onclick: () => choose(key) }, text),
    ));
    [curve, other].forEach((chart) => chart.clear());
  }

  /** Until somebody chooses, the first tab that has numbers: a CPU without a peak has no MFU. */
  function current() {
    const withNumbers = tabs.find(({ series }) => series.some(({ name }) => shared.columns.has(name)));
    return tabs.find(({ key }) => key === chosen) ?? withNumbers ?? tabs[0];
  }

  function drawCurve(waiting) {
    const { columns, state } = shared;
    const series = (host) => [
      lineSeries(host, 0, label, ""),
      ...(state.evals ? [pointSeries(host, `eval ${label}`)] : []),
    ];
    curve.show(
      (host) => makePlot(host, series(host), { x: columns.x, unit: "", range: valueRange, syncKey }),
      state.evals
        ? withEvals(columns, state.curve, state.evals)
        : [columns.column(columns.x.name), columns.column(state.curve)],
      waiting,
    );
  }

  function drawOther(waiting) {
    const { columns } = shared;
    const tab = current();
    if (drawn !== tab) other.clear();
    drawn = tab;
    const used = tab.series.filter(({ name }) => columns.has(name));
    other.label(`${tab.title} against the ${columns.x.label}`);
    other.show(
      (host) =>
        makePlot(host, used.map(({ label }, i) => lineSeries(host, i, label, tab.unit)), {
          x: columns.x, unit: tab.unit, range: fromZero, syncKey,
        }),
      [columns.column(columns.x.name), ...used.map(({ name }) => columns.column(name, tab.scale))],
      columns.length ? noNumbers(tab) : waiting,
    );
    tabs.forEach(({ key }, i) => tablist.children[i].setAttribute("aria-selected", String(key === tab.key)));
  }

  function draw() {
    const { columns, state } = shared;
    describe();
    // A kind without columns has nothing to draw.
    element.hidden = Boolean(state.no_steps) || columns.all.length < 2;
    if (element.hidden) return;
    const waiting = state.waiting_text || "No numbers yet.";
    curveCard.hidden = !label;
    if (!curveCard.hidden) drawCurve(waiting);
    otherCard.hidden = !tabs.length;
    if (!otherCard.hidden) drawOther(waiting);
  }

  const card = (head, body) => h("div.card", {}, h("div.cardhead", {}, head), body);
  const curveCard = card(title, curve.element);
  const otherCard = card(tablist, other.element);
  const element = h("div.charts", {}, curveCard, otherCard);
  // A legend keeps the colours it was made with, so a new theme needs new charts.
  const redraw = () => {
    [curve, other].forEach((chart) => chart.clear());
    draw();
  };
  const destroy = () => [curve, other].forEach((chart) => chart.destroy());
  return { element, draw, redraw, destroy };
}

function noNumbers({ key, series }) {
  if (series[0].name === "mfu") return "MFU is not known: no peak speed for this device.";
  if (key === "bytes") return "Memory is not known for this run.";
  return "No numbers yet.";
}
