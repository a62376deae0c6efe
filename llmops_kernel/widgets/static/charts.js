// The charts over a run's rows: the kind's curve, one of its other columns, and those that a user adds.

const GIB = 2 ** 30;
/** How a unit of a column is drawn; a unit that is not here is drawn as it is. */
const UNITS = {
  fraction: { scale: 100, unit: " %" },
  bytes: { scale: 1 / GIB, unit: " GiB", title: "Memory" },
  seconds: { scale: 1, unit: " s" },
};

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** One tab a unit: columns of one unit share an axis, those of no known unit have one each. */
function tabsOf(columns, curve) {
  const tabs = new Map();
  for (const column of columns.slice(1)) {
    if (column.name === curve || AXIS_COLUMNS.has(column.name)) continue;
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

/** A chart for each metric of the evaluations but the loss, which is drawn with the training's. */
function evalTabs(curves) {
  return (curves ?? []).map(({ name, label, points }) =>
    ({ key: `eval:${name}`, title: `Eval ${label}`, scale: 1, unit: "", series: [], points, pointsLabel: label }));
}

/** What is drawn of a tab, with the user's choices: data and lines of a plot, and a note. */
function planOf(tab, { columns, x, steps, settings }) {
  const used = tab.series.filter(({ name }) => columns.has(name));
  const data = [x.values];
  const lines = [];
  let numLeftOut = 0;
  const shown = (values) => {
    if (!settings.log) return values;
    const found = positive(values);
    numLeftOut += found.numLeftOut;
    return found.values;
  };
  used.forEach(({ name, label }, color) => {
    const values = columns.column(name, tab.scale);
    const faint = settings.smoothing > 0;
    data.push(shown(values));
    lines.push({ label, color, faint });
    if (!faint) return;
    // Smoothed as it is, then cut: zero and less count in the mean.
    data.push(settings.log ? positive(smoothed(values, settings.smoothing)).values : smoothed(values, settings.smoothing));
    lines.push({ label: `${label}, smoothed`, color });
  });
  const joined = tab.points ? withPoints(data, atSteps(tab.points, steps, x.values), shown) : data;
  if (tab.points) lines.push({ label: tab.pointsLabel, color: used.length ? 1 : 0, dots: true });
  const note = numLeftOut ? `${numLeftOut.toLocaleString("en")} values of zero or less are not on the log scale.` : "";
  return { data: joined, lines, x, unit: tab.unit, log: settings.log, fromZero: tab.fromZero !== false, note };
}

/** Adds points to rows: aligned columns for uPlot. */
function withPoints(data, points, shown) {
  if (!points.length) return [...data, new Array(data[0].length).fill(null)];
  const values = shown(points.map((point) => point[1]));
  return uPlot.join([data, [points.map((point) => point[0]), values]]);
}

/** The zoom of all charts of a run: they show the same part. */
class Shown {
  constructor(redraw) {
    this.redraw = redraw;
    this.syncKey = `llmops-${Math.random()}`;
    this.bounds = [0, 1];
    this.part = null;
    this.drawn = [];
  }

  range() {
    return this.part ?? this.bounds;
  }

  marks() {
    return this.drawn;
  }

  zoom(part) {
    this.part = part;
    this.redraw();
  }

  scale(factor, at) {
    this.zoom(zoomed(this.range(), factor, at, this.bounds));
  }

  pan(share) {
    if (this.part) this.zoom(panned(this.part, share, this.bounds));
  }
}

function boundsOf(values, points) {
  const xs = [values[0], values[values.length - 1], points[0]?.[0], points[points.length - 1]?.[0]];
  const known = xs.filter((value) => value != null);
  if (!known.length) return [0, 1];
  const [low, high] = [Math.min(...known), Math.max(...known)];
  return low === high ? [low - 1, high + 1] : [low, high];
}

/** The charts; `shared` is the closure's shared data of one run, `kept` a user's settings. */
function createCharts(shared, kept) {
  const shown = new Shown(() => rescale());
  const cards = { curve: chartCard(shared, shown), other: chartCard(shared, shown) };
  const added = new Map();
  const title = h("span.cardtitle");
  const tablist = h("div.tabs", { role: "tablist", "aria-label": "Speed chart" });
  let settings = kept.read();
  let chosen = null;
  let described = null;
  let tabs = [];
  let label = "";
  let offered = null;

  /** Changes one choice of those that are kept now: another panel may have changed others since. */
  function choose(part) {
    const newest = kept.read();
    kept.keep({ ...newest, ...(typeof part === "function" ? part(newest) : part) });
    draw();
  }

  function readSettings() {
    const newest = kept.read();
    if (newest.x !== settings.x) shown.part = null;
    settings = newest;
  }

  const tools = chartTools(choose, { showAll: () => shown.zoom(null), csv: () => downloadCsv(shared) });

  /** New columns need new tabs and charts. */
  function describe() {
    const { columns, state } = shared;
    if (described === columns.all) return;
    described = columns.all;
    label = columns.all.find(({ name }) => name === state.curve)?.label ?? "";
    title.textContent = capital(label);
    tabs = tabsOf(columns.all, state.curve);
    tablist.replaceChildren(...tabs.map(({ key, title: text }) =>
      h("button.tab", { type: "button", role: "tab", onclick: () => { chosen = key; draw(); } }, text),
    ));
    allCards().forEach((card) => card.chart.clear());
  }

  const allCards = () => [cards.curve, cards.other, ...added.values()];

  /** Until somebody chooses, the first tab that has numbers: a CPU without a peak has no MFU. */
  function current() {
    const withNumbers = tabs.find(({ series }) => series.some(({ name }) => shared.columns.has(name)));
    return tabs.find(({ key }) => key === chosen) ?? withNumbers ?? tabs[0];
  }

  function frame() {
    const { columns, state } = shared;
    const steps = columns.column(columns.x.name);
    const of = (name) => columns.values[name]?.subarray(0, columns.length) ?? NO_VALUES;
    const native = { label: columns.x.label, values: steps };
    const whole = state.every_row !== false;
    const axes = axesOf(columns, native, of, whole);
    const x = xValues(settings.x, native, of, whole) ?? xValues("step", native, of);
    const evals = atSteps(state.evals ?? [], steps, x.values);
    shown.bounds = boundsOf(x.values, evals);
    shown.drawn = marksOf(state).map(({ step, bad }) => ({ x: atSteps([[step, 0]], steps, x.values)[0][0], bad }));
    return { columns, x, steps, settings, axes };
  }

  function drawCard(card, tab, around, text) {
    const plan = planOf(tab, around);
    card.draw({ ...plan, text, label: `${tab.title} against ${around.x.label}`, title: tab.title });
  }

  /** The charts that a user has added, in the order of their choice. */
  function drawAdded(more, around) {
    const wanted = settings.more.map((key) => more.find((tab) => tab.key === key)).filter(Boolean);
    for (const [key, card] of added) {
      if (wanted.some((tab) => tab.key === key)) continue;
      card.destroy();
      added.delete(key);
    }
    for (const tab of wanted) {
      if (!added.has(tab.key)) added.set(tab.key, chartCard(shared, shown, h("span.cardtitle", {}, tab.title)));
      const card = added.get(tab.key);
      grid.append(card.element);
      drawCard(card, tab, around, noNumbers(tab));
    }
  }

  function draw() {
    const { columns, state } = shared;
    readSettings();
    describe();
    // A kind without columns has nothing to draw.
    element.hidden = Boolean(state.no_steps) || columns.all.length < 2;
    if (element.hidden) return;
    const around = frame();
    const waiting = state.waiting_text || "No numbers yet.";
    cards.curve.element.hidden = !label;
    if (label) drawCard(cards.curve, curveTab(state, columns, label), around, waiting);
    cards.other.element.hidden = !tabs.length;
    const tab = current();
    if (tab) drawCard(cards.other, tab, around, columns.length ? noNumbers(tab) : waiting);
    tabs.forEach(({ key }, i) => tablist.children[i].setAttribute("aria-selected", String(key === tab.key)));
    const more = [...tabs, ...evalTabs(state.eval_curves)];
    drawAdded(more, around);
    offered = { settings, axes: around.axes, charts: more, whole: state.every_row !== false };
    showTools();
    notes.textContent = notesOf(state, settings).join(" ");
  }

  const showTools = () => offered && tools.update({ ...offered, isZoomed: shown.part !== null });

  /** The same data: 100,000 rows are not read again for each move of the mouse. */
  function rescale() {
    allCards().forEach((card) => card.chart.rescale());
    showTools();
  }

  cards.curve.head.prepend(title);
  cards.other.head.prepend(tablist);
  const grid = h("div.chartgrid", {}, cards.curve.element, cards.other.element);
  const notes = h("p.chartnote");
  const element = h("div.charts", {}, tools.element, grid, notes);
  // A legend keeps the colours it was made with, so a new theme needs new charts.
  const redraw = () => {
    allCards().forEach((card) => card.chart.clear());
    draw();
  };
  const destroy = () => allCards().forEach((card) => card.destroy());
  return { element, draw, redraw, destroy };
}

function chartCard(shared, shown, ...heading) {
  const chart = new Chart(shown);
  let title = "";
  const png = h("button.button.png", {
    type: "button", onclick: () => downloadPng(chart, `${shared.state.run_id}: ${title}`, `${shared.state.run_id}-${title}.png`),
  }, "PNG");
  const head = h("div.cardhead", {}, ...heading, png);
  const element = h("div.card", {}, head, chart.element);
  const draw = (plan) => {
    title = plan.title;
    png.setAttribute("aria-label", `Download ${title} as PNG`);
    chart.show(plan);
  };
  const destroy = () => {
    chart.destroy();
    element.remove();
  };
  return { chart, head, element, draw, destroy };
}

function curveTab(state, columns, label) {
  const series = columns.all.filter(({ name }) => name === state.curve);
  const tab = { key: "curve", title: capital(label), scale: 1, unit: "", series, fromZero: false };
  return state.evals ? { ...tab, points: state.evals, pointsLabel: `eval ${label}` } : tab;
}

/** Which x axes the rows have numbers for; one without any is offered and says so. */
function axesOf(columns, native, of, whole) {
  const own = new Set(columns.all.map(({ name }) => name));
  const offered = X_AXES.filter(({ key }) => key === "step" || own.has(key === "time" ? "utc_day" : key));
  return offered.map(({ key, label }) => ({
    key, label: key === "step" ? native.label : label, known: xValues(key, native, of, whole) !== null,
  }));
}

/** Restarts, and where the curve stops being a number. */
function marksOf(state) {
  const marks = (state.restart_steps ?? []).map((step) => ({ step, bad: false }));
  return state.nan_since == null ? marks : [...marks, { step: state.nan_since, bad: true }];
}

function notesOf(state, { smoothing }) {
  const restarts = (state.restart_steps ?? []).map((step) => step.toLocaleString("en"));
  return [
    restarts.length ? `Restarted after step ${restarts.join(", ")} (dashed lines).` : "",
    state.nan_since == null ? "" : `The loss is not a number (NaN) since step ${state.nan_since.toLocaleString("en")}.`,
    strideNote(state),
    smoothing && state.every_row === false ? "Some steps are left out here; only the shown ones are smoothed." : "",
  ].filter(Boolean);
}

/** What the drawn points stand for where a run has more steps than a page can hold. */
function strideNote({ stride = 1 }) {
  if (stride < 2) return "";
  const steps = stride.toLocaleString("en");
  return `Too many steps to send: up to ${steps} steps are two points, their lowest and highest values. run.metrics() has every step.`;
}

function noNumbers({ key, series }) {
  if (series[0]?.name === "mfu") return "MFU is not known: no peak speed for this device.";
  if (key === "bytes") return "Memory is not known for this run.";
  return "No numbers yet.";
}
