// The line of choices above the charts, and downloads.

/** Where a user's choices are kept: by Lab's settings, else by this browser. */
const CHARTS_KEY = "llmops-charts";

function keptSettings(model) {
  let own = null; // Where the browser keeps nothing, the choices hold until the page is closed.
  const inLab = () => {
    const kept = model.get("chart_settings");
    return kept && typeof kept === "object" ? kept : null;
  };
  return {
    read() {
      try {
        return chartSettings(inLab() ?? own ?? JSON.parse(localStorage.getItem(CHARTS_KEY)));
      } catch {
        return chartSettings(null); // The browser keeps nothing, or something else.
      }
    },
    keep(value) {
      if (inLab()) {
        model.send({ kind: "chart_settings", value });
        return;
      }
      try {
        localStorage.setItem(CHARTS_KEY, JSON.stringify(value));
        own = null;
      } catch {
        own = value;
      }
    },
  };
}

/**
 * @param {(part: object | ((settings: object) => object)) => void} choose called with what changes
 * @param {{showAll: () => void, csv: () => void}} act
 */
function chartTools(choose, act) {
  const x = h("select.select", { onchange: () => choose({ x: x.value }) });
  const smoothing = h("input", {
    type: "range", min: 0, max: 0.99, step: 0.01, oninput: () => choose({ smoothing: Number(smoothing.value) }),
  });
  const weight = h("output");
  const log = h("input", { type: "checkbox", onchange: () => choose({ log: log.checked }) });
  const list = h("div.morelist", { role: "group", "aria-label": "Further charts" });
  const more = h("details.more", {}, h("summary", {}, "Charts"), list);
  const showAll = h("button.button", { type: "button", onclick: act.showAll }, "Show all");
  const csv = h("button.button", { type: "button", onclick: act.csv }, "CSV");
  const element = h("div.charttools", { role: "group", "aria-label": "Chart settings" },
    h("label", {}, "x axis ", x),
    h("label", { title: "Exponential moving average, as in TensorBoard and W&B" }, "smoothing ", smoothing, weight),
    h("label", {}, log, " log scale"), more, showAll,
    csv);

  const fillX = onChange((axes) => x.replaceChildren(...axes.map(({ key, label, known }) =>
    h("option", { value: key, disabled: !known }, known ? label : `${label} (not known)`))));
  const fillMore = onChange((charts) => list.replaceChildren(...charts.map(({ key, title }) => {
    const toggle = () => choose((settings) => ({ more: toggled(settings.more, key) }));
    const box = h("input", { type: "checkbox", "data-key": key, onchange: toggle });
    return h("label", {}, box, ` ${title}`);
  })));

  function update({ settings, axes, charts, whole, isZoomed }) {
    csv.title = whole ? "All numbers of the charts" : "The points that are drawn; run.metrics() has every step";
    fillX(axes);
    fillMore(charts.map(({ key, title }) => ({ key, title })));
    x.value = settings.x;
    if (Number(smoothing.value) !== settings.smoothing) smoothing.value = settings.smoothing;
    weight.textContent = settings.smoothing ? ` ${settings.smoothing.toFixed(2)}` : " off";
    log.checked = settings.log;
    more.hidden = !charts.length;
    for (const box of list.querySelectorAll("input")) box.checked = settings.more.includes(box.dataset.key);
    showAll.disabled = !isZoomed;
  }
  return { element, update };
}

const toggled = (list, item) => (list.includes(item) ? list.filter((other) => other !== item) : [...list, item]);

function download(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** All rows as they came, or the points that stand for them, in base units: what is smoothed or scaled is only drawn. */
function downloadCsv(shared) {
  const { columns, state } = shared;
  const names = columns.all.map(({ name }) => name);
  const text = toCsv(names, names.map((name) => columns.values[name].subarray(0, columns.length)));
  const part = state.every_row === false ? "-drawn-points" : "";
  download(`${state.run_id}${part}.csv`, new Blob([text], { type: "text/csv" }));
}

/** The chart on the panel's own background, below its title and the names of its lines. */
function downloadPng(chart, title, name) {
  const { plot, host } = chart;
  if (!plot) return;
  const source = plot.ctx.canvas;
  const scale = source.width / plot.width;
  const head = 44 * scale;
  const canvas = h("canvas", { width: source.width, height: source.height + head });
  const ctx = canvas.getContext("2d");
  const style = getComputedStyle(host.closest(".llmops-run") ?? host);
  ctx.fillStyle = style.backgroundColor;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.font = `${12 * scale}px system-ui, sans-serif`;
  ctx.fillStyle = style.color;
  ctx.fillText(title, 8 * scale, 16 * scale);
  let left = 8 * scale;
  for (const series of plot.series.slice(1)) {
    ctx.fillStyle = series.stroke(plot);
    ctx.fillText(series.label, left, 34 * scale);
    left += ctx.measureText(series.label).width + 14 * scale;
  }
  ctx.drawImage(source, 0, head);
  canvas.toBlob((blob) => blob && download(name, blob));
}
