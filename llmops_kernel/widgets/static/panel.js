// Live panel of a run. Contract: llmops_kernel/widgets/run_panel.py (traits state, log, notice,
// columns; messages out: hello, resync, stop, samples, chart_settings where the model has that; in: rows, samples).
// A model whose `stops_elsewhere` is true has a button for stopping beside the panel.

function renderPanel({ el, model, shared }) {
  const send = (content) => model.send(content);
  const parts = {
    header: header(send, { stopsElsewhere: model.get("stops_elsewhere") === true }), progress: progress(), figures: figures(), messages: messages(),
    charts: createCharts(shared, keptSettings(model)), waterfall: waterfall(), evaluations: evaluations(),
    members: members(), samples: samples(send), outputs: outputs(), log: logTail(),
  };
  const root = h("section.run", { "aria-label": "Run" }, ...Object.values(parts).map((part) => part.element));
  el.append(root);

  const drawState = () => {
    const { messages, charts, log, samples, ...others } = parts;
    for (const part of Object.values(others)) part.update(shared.state);
    messages.update(shared.state, model.get("notice"));
    samples.update(shared.state, { answer: shared.samplePage, canPage: model.get("can_page") === true });
    log.update(model.get("log"));
    root.dataset.state = shared.state.state;
    root.dataset.steps = shared.columns.length;
  };
  let frame = 0;
  const draw = () => {
    // Many messages may come within one frame of the screen; they are drawn once.
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      drawState();
      parts.charts.draw();
    });
  };
  const theme = new MutationObserver(() => parts.charts.redraw());
  theme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
  shared.views.add(draw);
  draw();
  const hello = () => send({ kind: "hello" });
  hello();
  // The first one waits behind a busy cell: JupyterLab has no subshell for messages yet.
  const again = setTimeout(hello, 1500);
  return () => {
    clearTimeout(again);
    cancelAnimationFrame(frame);
    shared.views.delete(draw);
    theme.disconnect();
    parts.charts.destroy();
  };
}

/** One call a model: its data is shared by all of its views. */
export default () => {
  const shared = { columns: new Columns(), state: {}, views: new Set() };
  const drawAll = () => shared.views.forEach((draw) => draw());

  function initialize({ model }) {
    const readState = () => {
      shared.state = model.get("state") ?? {};
      shared.columns.describe(shared.state.columns ?? []);
      drawAll();
    };
    const readColumns = () => {
      shared.columns.write(0, model.get("columns"));
      drawAll();
    };
    const onMessage = (content, buffers) => {
      if (content?.kind === "samples") {
        shared.samplePage = content.page;
        drawAll();
      }
      if (content?.kind !== "rows") return;
      if (!shared.columns.write(content.first, buffers[0])) model.send({ kind: "resync" });
      drawAll();
    };
    model.on("change:state", readState);
    model.on("change:columns", readColumns);
    model.on("change:log", drawAll);
    model.on("change:notice", drawAll);
    model.on("change:chart_settings", drawAll);
    model.on("msg:custom", onMessage);
    readState();
    readColumns();
    return () => {
      model.off("change:state", readState);
      model.off("change:columns", readColumns);
      model.off("change:log", drawAll);
      model.off("change:notice", drawAll);
      model.off("change:chart_settings", drawAll);
      model.off("msg:custom", onMessage);
    };
  }

  return { initialize, render: ({ model, el }) => renderPanel({ model, el, shared }) };
};
