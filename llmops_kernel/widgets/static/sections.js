// The panel's parts. Each returns { element, update(state) }.

const STATE_WORDS = {
  PENDING: "Pending", QUEUED: "Queued", RUNNING: "Running", RESTARTING: "Restarting", STOPPING: "Stopping",
  SUCCEEDED: "Succeeded", FAILED: "Failed", STOPPED: "Stopped",
};

function header(send, { stopsElsewhere = false } = {}) {
  const badge = h("span.badge", { role: "status" });
  const title = h("span.title.ellipsed");
  const facts = h("div.facts.ellipsed");
  const why = h("div.why", { role: "status" });
  const stop = stopButton(send, stopsElsewhere);
  const element = h("header.head", {}, h("div.headline", {}, badge, title, stop.element), facts, why);
  const update = onChange(([state, runId, attempt, what, cluster, ended, asked, , saves = "a checkpoint", text = "", name = runId]) => {
    why.textContent = text;
    why.hidden = !text;
    badge.textContent = STATE_WORDS[state] ?? state;
    badge.dataset.state = state;
    title.textContent = name;
    title.title = runId;
    const parts = [name === runId ? "" : runId, what, cluster ? `cluster ${cluster}` : "", attempt > 1 ? `attempt ${attempt}` : ""];
    facts.textContent = facts.title = parts.filter(Boolean).join(" · ");
    stop.update({ ended, asked: asked || state === "STOPPING", saves });
  });
  return {
    element,
    update: (s) => update([s.state, s.run_id, s.attempt, s.what, s.cluster, s.ended, s.stop_asked, s.stop_refused, s.saves, s.state_text, s.title || s.name]),
  };
}

/** Asks for confirmation beside the button: a dialog would block the page. */
function stopButton(send, stopsElsewhere) {
  const element = h("div.stop");
  let asking = false;
  let now = { ended: true, asked: false, saves: "a checkpoint" };
  const ask = (value) => () => {
    asking = value;
    draw();
    element.querySelector("button")?.focus();
  };
  const confirm = () => {
    asking = false;
    send({ kind: "stop" });
    element.replaceChildren(h("span.muted", { role: "status" }, "Requesting a stop…"));
  };
  function draw() {
    element.replaceChildren();
    if (now.ended) return;
    if (now.asked) {
      element.append(h("span.muted", { role: "status" }, `Saving ${now.saves}, then stopping…`));
    } else if (asking) {
      element.append(
        h("span", {}, `Stop and save ${now.saves}?`),
        h("button.button.danger", { type: "button", onclick: confirm }, "Stop"),
        h("button.button", { type: "button", onclick: ask(false) }, "Keep running"),
      );
    } else if (!stopsElsewhere) {
      element.append(h("button.button", { type: "button", onclick: ask(true) }, "Stop"));
    }
  }
  function update(value) {
    now = value;
    draw();
  }
  return { element, update };
}

function progress() {
  const fill = h("div.fill");
  const bar = h("div.bar", { role: "progressbar", "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100 }, fill);
  const left = h("span");
  const right = h("span.muted");
  const element = h("div.progress", {}, bar, h("div.progresstext", {}, left, right));
  const update = onChange(([fraction, text, eta, state]) => {
    bar.dataset.state = state;
    const busy = fraction == null && ["PENDING", "QUEUED", "RUNNING", "RESTARTING"].includes(state);
    bar.classList.toggle("llmops-busy", busy);
    fill.style.width = fraction == null ? "" : `${(fraction * 100).toFixed(2)}%`;
    if (fraction == null) bar.removeAttribute("aria-valuenow");
    else bar.setAttribute("aria-valuenow", Math.round(fraction * 100));
    const percent = fraction == null ? "" : `${Math.floor(fraction * 100)} %`;
    left.textContent = [text, percent].filter(Boolean).join(" · ");
    right.textContent = eta;
  });
  return { element, update: (s) => update([s.progress, s.progress_text, s.eta_text, s.state]) };
}

function figures() {
  const element = h("div.figures", { role: "list" });
  const cells = new Map();
  const cell = (label) => {
    const value = h("div.value");
    const box = h("div.figure", { role: "listitem" }, h("div.label", {}, label), value);
    element.append(box);
    return { box, value };
  };
  // Elements are updated, not replaced: a tooltip that is being read must not vanish.
  const update = onChange((list) => {
    for (const { label, value, hint } of list) {
      if (!cells.has(label)) cells.set(label, cell(label));
      const { box, value: text } = cells.get(label);
      if (text.textContent !== value) text.textContent = value;
      box.title = hint;
      box.setAttribute("aria-label", `${label} ${value}`);
    }
  });
  const show = (s) => {
    element.hidden = Boolean(s.no_steps);
    update(s.figures ?? []);
  };
  return { element, update: show };
}

/** Failures, the end's message, trouble of the panel itself, restarts and warnings. */
function messages() {
  const element = h("div.messages");
  const update = onChange(([failures, message, remedy, state, restarts, warnings, notice]) => {
    const boxes = failures.map((failure) => failureBox(failure, state === "FAILED"));
    const isShown = failures.some((failure) => failure.message === message);
    if (message && !isShown) boxes.unshift(box(state === "FAILED" ? "error" : "info", message, remedy));
    if (notice?.message) boxes.unshift(box("warn", notice.message, notice.remedy));
    boxes.push(...restarts.map((text) => box("info", text, "")));
    boxes.push(...warnings.map(({ message: text, remedy: todo, times }) =>
      box("warn", times > 1 ? `${text} (${times} times)` : text, todo)));
    element.replaceChildren(...boxes);
  });
  return {
    element,
    update: (s, notice) =>
      update([s.failures ?? [], s.message, s.remedy, s.state, s.restarts ?? [], s.warnings ?? [], notice]),
  };
}

function box(kind, message, remedy, ...more) {
  return h(
    `div.box.${kind}`,
    { role: kind === "error" ? "alert" : "note" },
    h("div.message", {}, message),
    remedy ? h("div.remedy", {}, h("b", {}, "Try: "), remedy) : null,
    ...more,
  );
}

function failureBox({ error, message, remedy, ranks, where, traceback }, fatal) {
  const head = h("div.where", {}, h("b", {}, error), where ? h("code", {}, where) : null, ranks ? h("span.muted", {}, ranks) : null);
  const fold = traceback
    ? h("details", {}, h("summary", {}, "Traceback"), h("pre.traceback", { tabindex: 0 }, traceback))
    : null;
  const result = box(fatal ? "error" : "warn", message, remedy, fold);
  result.prepend(head);
  return result;
}

function waterfall() {
  const summary = h("summary");
  const rows = h("div.waterfall", { role: "list" });
  const later = h("div.muted.later");
  const processes = h("div.muted.later");
  const element = h("details.fold", { open: true }, summary, rows, later, processes);
  let folded = false;
  const update = onChange(([{ rows: spans, later: rest, total, first = "first step" }, started]) => {
    element.hidden = !spans.length;
    // Once: who opens it again keeps it open.
    if (total !== "–" && !folded) {
      folded = true;
      element.open = false;
    }
    summary.textContent = total === "–" ? "Start-up" : `Start-up: ${total} from submit to the ${first}`;
    processes.textContent = started ? `Processes: ${started}` : "";
    rows.replaceChildren(...spans.map(waterfallRow));
    later.textContent = rest.length ? `After it: ${rest.join(", ")}` : "";
  });
  return { element, update: (s) => update([s.waterfall ?? { rows: [], later: [], total: "–" }, s.processes]) };
}

function waterfallRow({ name, detail, left, width, text, running, interrupted }) {
  const kind = interrupted ? ".interrupted" : running ? ".running" : "";
  const fill = h(`div.span${kind}`);
  fill.style.left = `min(${(left * 100).toFixed(2)}%, 100% - 2px)`;
  fill.style.width = `max(2px, ${(width * 100).toFixed(2)}%)`;
  return h(
    `div.phase${kind}`,
    { role: "listitem", title: detail ? `${name}: ${detail}` : name, "aria-label": `${name} ${text} ${detail}` },
    h("span.phasename", {}, name),
    h("span.phasetime", {}, text),
    h("div.track", {}, fill),
    h("span.phasedetail.ellipsed", {}, detail),
  );
}

function evaluations() {
  const element = h("details.fold", { open: true });
  const update = onChange(({ columns, rows }) => {
    element.hidden = !rows.length;
    if (!rows.length) return;
    element.replaceChildren(h("summary", {}, `Evaluations (${rows.length})`), scrolled("Evaluations", columns, rows));
  });
  return { element, update: (s) => update(s.eval_rows ?? { columns: [], rows: [] }) };
}

/** The newest rows with their answers, a page of them: fields below each other where the panel is narrow. */
function samples(send) {
  const title = h("summary");
  const list = h("div.samples");
  const open = new Set(); // Rows whose answers over the steps are shown; they stay so.
  let newest = { at: "", columns: [], rows: [] };
  let around = { answer: null, canPage: false };
  const pager = samplePager((first) => {
    if (first) send({ kind: "samples", first });
    draw();
  });
  const element = h("details.fold", { open: true }, title, list, pager.element);
  const show = onChange(({ at, columns, rows, history = [] }) => {
    element.hidden = !rows.length;
    title.textContent = `Samples ${at}`;
    const named = columns.indexOf("row");
    list.replaceChildren(...rows.map((row, index) => {
      const name = named < 0 ? `${index + 1}` : row[named];
      const element = sample(columns, row);
      const found = history.find((one) => one.row === name);
      if (found) element.append(overSteps(found, open));
      return element;
    }));
  });
  const draw = () => show(pager.pick(newest, around));
  function update(state, more) {
    newest = state.samples ?? { at: "", columns: [], rows: [] };
    around = more;
    draw();
  }
  return { element, update };
}

/** The line below a page of samples; `turn` is called with the first sample of the page that is wanted. */
function samplePager(turn) {
  const text = h("span.muted", { role: "status" });
  let first = 0;
  let size = 1;
  let shown = null;
  const by = (pages) => () => {
    first = Math.max(0, first + pages * size);
    turn(first);
  };
  const previous = h("button.button", { type: "button", onclick: by(-1) }, "Previous");
  const next = h("button.button", { type: "button", onclick: by(1) }, "Next");
  const element = h("div.pager", { role: "group", "aria-label": "Pages of samples" }, previous, next, text);

  /** The page to show: the newest one, or what was asked for; until that is there, the one before. */
  function pick(newest, { answer, canPage }) {
    size = Math.max(1, newest.rows.length);
    if (first === 0) shown = newest;
    else if (answer?.first === first) shown = answer;
    const { first: from = 0, rows, total = rows.length } = shown;
    const [low, high, all] = [from + 1, from + rows.length, total].map((number) => number.toLocaleString("en"));
    element.hidden = total <= rows.length;
    text.textContent = `${low} to ${high} of ${all} samples`;
    previous.hidden = next.hidden = !canPage;
    previous.disabled = first === 0;
    next.disabled = first + size >= total;
    return shown;
  }
  return { element, pick };
}

/** One row's answers from the first to the last, the words that the one before lacks marked. */
function overSteps({ row, answers }, open) {
  const lines = answers.map(({ at, words, more }) =>
    h("div.answer", { role: "listitem" },
      h("span.label", {}, `step ${at}`),
      h("div.sampletext", { tabindex: 0 }, ...words.map(([text, isNew]) => h(isNew ? "mark" : "span", {}, text)), more)));
  const first = answers[0].at;
  const element = h("details.answers", { open: open.has(row) },
    h("summary", {}, `${answers.length} answers since step ${first}`), h("div", { role: "list" }, ...lines));
  element.addEventListener("toggle", () => (element.open ? open.add(row) : open.delete(row)));
  return element;
}

function sample(columns, row) {
  // Texts of a model are never markup: `h` makes text nodes.
  const fields = row.map((text, index) =>
    h(`div.samplefield.sample-${columns[index].replace(/[^a-z]+/gi, "-")}`, {},
      h("div.label", {}, columns[index]), h("div.sampletext", { tabindex: 0 }, text || "–")));
  return h("div.sample", { role: "group" }, ...fields);
}

/** What each replica does, where there are several. */
function members() {
  const element = h("details.fold", { open: true });
  const update = onChange(({ columns, rows }) => {
    element.hidden = rows.length < 2;
    if (element.hidden) return;
    element.replaceChildren(h("summary", {}, `Replicas (${rows.length})`), scrolled("Replicas", columns, rows));
  });
  return { element, update: (s) => update(s.members ?? { columns: [], rows: [] }) };
}

/** A table that may be larger than its place: it scrolls by the arrow keys too. */
function scrolled(label, columns, rows) {
  return h("div.scroll", { role: "region", "aria-label": label, tabindex: 0 }, tableOf(columns, rows));
}

function tableOf(columns, rows) {
  const head = h("tr", {}, ...columns.map((name) => h("th", { scope: "col" }, name)));
  const body = rows.map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, cell))));
  return h("table.table", {}, h("thead", {}, head), h("tbody", {}, ...body));
}

function copyButton(text) {
  const button = h("button.button", { type: "button", "aria-label": `Copy ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    // A page that is not served over HTTPS has no clipboard, as Lab on another machine's address.
    const copied = await toClipboard(text);
    button.textContent = copied ? "Copied" : "Copy";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = h("textarea", {}, text);
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

function outputs() {
  const list = h("ul.outputs");
  const element = h("div.fold", {}, h("div.foldtitle", {}, "Outputs"), list);
  const update = onChange((items) => {
    element.hidden = !items.length;
    list.replaceChildren(
      ...items.map(({ what, path, size }) =>
        h("li", {}, h("span.what", {}, what), h("code.path", { title: path }, path), h("span.muted", {}, size), copyButton(path)),
      ),
    );
  });
  return { element, update: (s) => update(s.outputs ?? []) };
}

function logTail() {
  const pre = h("pre.log", { tabindex: 0, "aria-label": "Log of the run" });
  const follow = h("input", { type: "checkbox", onchange: () => follow.checked && toEnd() });
  follow.checked = true;
  const label = h("label.follow", {}, follow, "follow");
  const element = h("details.fold", { ontoggle: () => toEnd() }, h("summary", {}, "Log"), label, pre);
  const toEnd = () => {
    if (follow.checked) pre.scrollTop = pre.scrollHeight;
  };
  const update = onChange((text) => {
    pre.textContent = text || "The log is empty so far.";
    toEnd();
  });
  return { element, update };
}
