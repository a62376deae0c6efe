/** The parts of the panel between its charts and samples. */

import {
  PanelBar,
  PanelFailure,
  PanelFigure,
  PanelLosses,
  PanelOutput,
  PanelTable,
  PanelWaterfall
} from '../wire';
import { button, h, onChange } from './dom';
import { INotice, IPanelState, ISection } from './state';

const STATE_LABELS: Record<string, string> = {
  PENDING: 'Pending',
  QUEUED: 'Queued',
  RUNNING: 'Running',
  RESTARTING: 'Restarting',
  STOPPING: 'Stopping',
  SUCCEEDED: 'Succeeded',
  FAILED: 'Failed',
  STOPPED: 'Stopped'
};
const WORKING = new Set<IPanelState['state']>([
  'PENDING',
  'QUEUED',
  'RUNNING',
  'RESTARTING'
]);
const NOT_STARTED: PanelWaterfall = {
  rows: [],
  later: [],
  total: '–',
  first: 'first step'
};
const NO_TABLE: PanelTable = { columns: [], rows: [] };
const NO_LOSSES: PanelLosses = {
  rows: [],
  note: '',
  verdict: '',
  change: '',
  overrides: []
};

/** Name, state and facts of the run; without `stop` there is no button for it. */
export function header(stop: (() => void) | undefined): ISection {
  const badge = h('span.badge', { role: 'status' });
  const title = h('span.title.ellipsed');
  const facts = h('div.facts.ellipsed');
  const why = h('div.why', { role: 'status' });
  const stopping = stopButton(stop);
  const headline = h('div.headline', {}, badge, title, stopping.element);
  const element = h('header.head', {}, headline, facts, why);
  const draw = onChange((state: IPanelState) => {
    const { run_id: runId = '', attempt = 1, cluster } = state;
    const name = state.title || state.name || runId;
    why.textContent = state.state_text ?? '';
    why.hidden = !state.state_text;
    badge.textContent = STATE_LABELS[state.state ?? ''] ?? state.state ?? '';
    badge.dataset.state = state.state ?? '';
    title.textContent = name;
    title.title = runId;
    const parts = [
      name === runId ? '' : runId,
      state.what,
      cluster && `cluster ${cluster}`,
      attempt > 1 && `attempt ${attempt}`
    ];
    facts.textContent = facts.title = parts.filter(Boolean).join(' · ');
    stopping.update(state);
  });
  // Only what is shown here: the confirmation must outlive the other changes of a running run.
  const update = (state: IPanelState) =>
    draw({
      state: state.state,
      run_id: state.run_id,
      attempt: state.attempt,
      what: state.what,
      cluster: state.cluster,
      ended: state.ended,
      stop_asked: state.stop_asked,
      stop_refused: state.stop_refused,
      saves: state.saves,
      state_text: state.state_text,
      title: state.title,
      name: state.name
    });
  return { element, update };
}

/** Asks for confirmation beside the button: a dialog would block the page. */
function stopButton(stop: (() => void) | undefined): ISection {
  const element = h('div.stop');
  let asking = false;
  let now: IPanelState = { ended: true };
  const ask = (value: boolean) => () => {
    asking = value;
    draw();
    element.querySelector('button')?.focus();
  };
  const confirm = () => {
    asking = false;
    stop?.();
    show(muted('Requesting a stop…'));
  };
  const show = (...children: HTMLElement[]) =>
    element.replaceChildren(...children);
  const muted = (text: string) => h('span.muted', { role: 'status' }, text);
  function draw(): void {
    const { ended, stop_asked, state, saves = 'a checkpoint' } = now;
    if (ended) {
      show();
    } else if (stop_asked || state === 'STOPPING') {
      show(muted(`Saving ${saves}, then stopping…`));
    } else if (asking) {
      const danger = button('Stop', confirm);
      danger.classList.add('llmops-danger');
      const keep = button('Keep running', ask(false));
      show(h('span', {}, `Stop and save ${saves}?`), danger, keep);
    } else if (stop) {
      show(button('Stop', ask(true)));
    } else {
      show();
    }
  }
  function update(state: IPanelState): void {
    now = state;
    draw();
  }
  return { element, update };
}

export function progress(): ISection {
  const fill = h('div.fill');
  const bar = h(
    'div.bar',
    {
      role: 'progressbar',
      'aria-label': 'Progress',
      'aria-valuemin': 0,
      'aria-valuemax': 100
    },
    fill
  );
  const left = h('span');
  const right = h('span.muted');
  const texts = h('div.progresstext', {}, left, right);
  const element = h('div.progress', {}, bar, texts);
  const draw = onChange((state: IPanelState) => {
    const fraction = state.progress ?? null;
    const isBusy = fraction === null && WORKING.has(state.state);
    bar.dataset.state = state.state ?? '';
    bar.classList.toggle('llmops-busy', isBusy);
    let percent = '';
    if (fraction === null) {
      fill.style.width = '';
      bar.removeAttribute('aria-valuenow');
    } else {
      fill.style.width = `${(fraction * 100).toFixed(2)}%`;
      bar.setAttribute('aria-valuenow', String(Math.round(fraction * 100)));
      percent = `${Math.floor(fraction * 100)} %`;
    }
    const texts = [state.progress_text, percent];
    left.textContent = texts.filter(Boolean).join(' · ');
    right.textContent = state.eta_text ?? '';
  });
  const update = (state: IPanelState) =>
    draw({
      progress: state.progress,
      progress_text: state.progress_text,
      eta_text: state.eta_text,
      state: state.state
    });
  return { element, update };
}

export function figures(): ISection {
  const element = h('div.figures', { role: 'list' });
  const cells = new Map<string, { box: HTMLElement; text: HTMLElement }>();
  const addCell = (label: string) => {
    const text = h('div.value');
    const title = h('div.label', {}, label);
    const box = h('div.figure', { role: 'listitem' }, title, text);
    element.append(box);
    cells.set(label, { box, text });
    return { box, text };
  };
  // Elements are updated, not replaced: a tooltip that is being read must not vanish.
  const draw = onChange<PanelFigure[]>(list => {
    for (const { label, value, hint } of list) {
      const { box, text } = cells.get(label) ?? addCell(label);
      if (text.textContent !== value) {
        text.textContent = value;
      }
      box.title = hint;
      box.setAttribute('aria-label', `${label} ${value}`);
    }
  });
  const update = (state: IPanelState) => {
    element.hidden = Boolean(state.no_steps);
    draw(state.figures ?? []);
  };
  return { element, update };
}

/** Failures, the end's message, trouble of the panel itself, restarts and warnings. */
export function messages(): {
  element: HTMLElement;
  update(state: IPanelState, notice: INotice | null): void;
} {
  const element = h('div.messages');
  const draw = onChange((shown: IPanelState & { notice: INotice | null }) => {
    const { failures = [], restarts = [], warnings = [], message } = shown;
    const { notice, remedy = '' } = shown;
    const isFatal = shown.state === 'FAILED';
    const boxes = failures.map(failure => failureBox(failure, isFatal));
    if (message && !failures.some(failure => failure.message === message)) {
      boxes.unshift(box(isFatal ? 'error' : 'info', message, remedy));
    }
    if (notice?.message) {
      boxes.unshift(box('warn', notice.message, notice.remedy));
    }
    boxes.push(...restarts.map(text => box('info', text, '')));
    for (const { message: text, remedy: todo, times } of warnings) {
      const counted = times > 1 ? `${text} (${times} times)` : text;
      boxes.push(box('warn', counted, todo));
    }
    element.replaceChildren(...boxes);
  });
  const update = (state: IPanelState, notice: INotice | null) =>
    draw({
      failures: state.failures,
      message: state.message,
      remedy: state.remedy,
      state: state.state,
      restarts: state.restarts,
      warnings: state.warnings,
      notice
    });
  return { element, update };
}

function box(
  kind: 'error' | 'warn' | 'info',
  message: string,
  remedy: string,
  ...more: (HTMLElement | null)[]
): HTMLElement {
  return h(
    `div.box.${kind}`,
    { role: kind === 'error' ? 'alert' : 'note' },
    h('div.message', {}, message),
    remedy ? h('div.remedy', {}, h('b', {}, 'Try: '), remedy) : null,
    ...more
  );
}

function failureBox(
  { error, message, remedy, ranks, where, traceback }: PanelFailure,
  isFatal: boolean
): HTMLElement {
  const head = h(
    'div.where',
    {},
    h('b', {}, error),
    where ? h('code', {}, where) : null,
    ranks ? h('span.muted', {}, ranks) : null
  );
  const text = h('pre.traceback', { tabindex: 0 }, traceback);
  const fold = traceback
    ? h('details', {}, h('summary', {}, 'Traceback'), text)
    : null;
  const result = box(isFatal ? 'error' : 'warn', message, remedy, fold);
  result.prepend(head);
  return result;
}

export function waterfall(): ISection {
  const summary = h('summary');
  const rows = h('div.waterfall.startup', { role: 'list' });
  const later = h('div.muted.later');
  const processes = h('div.muted.later');
  const children = [summary, rows, later, processes];
  const element = h('details.fold', { open: true }, ...children);
  let folded = false;
  const draw = onChange(([phases, started]: [PanelWaterfall, string]) => {
    const { rows: bars, later: rest, total, first = 'first step' } = phases;
    const isDone = total !== '–';
    element.hidden = bars.length === 0;
    // Once: who opens it again keeps it open.
    if (isDone && !folded) {
      folded = true;
      element.open = false;
    }
    summary.textContent = isDone
      ? `Start-up: ${total} from submit to the ${first}`
      : 'Start-up';
    processes.textContent = started ? `Processes: ${started}` : '';
    rows.replaceChildren(...bars.map(waterfallRow));
    later.textContent = rest.length ? `After it: ${rest.join(', ')}` : '';
  });
  const update = (state: IPanelState) =>
    draw([state.waterfall ?? NOT_STARTED, state.processes ?? '']);
  return { element, update };
}

function waterfallRow(bar: PanelBar): HTMLElement {
  const { name, detail, text } = bar;
  const kind = bar.interrupted ? '.interrupted' : bar.running ? '.running' : '';
  const fill = h(`div.span${kind}`);
  fill.style.left = `min(${(bar.left * 100).toFixed(2)}%, 100% - 2px)`;
  fill.style.width = `max(2px, ${(bar.width * 100).toFixed(2)}%)`;
  return h(
    `div.phase${kind}`,
    {
      role: 'listitem',
      title: detail ? `${name}: ${detail}` : name,
      'aria-label': `${name} ${text} ${detail}`
    },
    h('span.phasename', {}, name),
    h('span.phasetime', {}, text),
    h('div.track', {}, fill),
    h('span.phasedetail.ellipsed', {}, detail)
  );
}

/** Where the FLOPs go, and the setting to change. */
export function losses(tryChange?: (overrides: string[]) => void): ISection {
  const title = h('summary', {}, 'Where the FLOPs go');
  const verdict = h('p.verdict');
  const rows = h('div.waterfall.losses', { role: 'list' });
  const note = h('div.muted.later');
  const change = h('div.change');
  const element = h('details.fold', {}, title, verdict, change, rows, note);
  const draw = onChange((shown: PanelLosses) => {
    element.hidden = shown.rows.length === 0;
    verdict.textContent = shown.verdict;
    rows.replaceChildren(...shown.rows.map(waterfallRow));
    note.textContent = shown.note;
    if (!shown.change) {
      change.replaceChildren();
      return;
    }
    const submit = () => tryChange?.(shown.overrides);
    change.replaceChildren(
      ...(tryChange ? [button('Submit with this change', submit)] : []),
      h('code.path', {}, shown.change),
      copyButton(shown.change)
    );
  });
  return { element, update: state => draw(state.losses ?? NO_LOSSES) };
}

/** What a device's memory was planned for, and the peak that was measured. */
export function memory(): ISection {
  const title = h('summary', {}, 'Memory of a device, planned and measured');
  const rows = h('div.waterfall.memory', { role: 'list' });
  const element = h('details.fold', {}, title, rows);
  const draw = onChange((bars: PanelBar[]) => {
    element.hidden = bars.length === 0;
    rows.replaceChildren(...bars.map(waterfallRow));
  });
  return { element, update: state => draw(state.memory ?? []) };
}

export function evaluations(): ISection {
  const section = tableFold('Evaluations');
  const update = (state: IPanelState) =>
    section.draw(state.eval_rows ?? NO_TABLE);
  return { element: section.element, update };
}

/** Numbers of each replica, where there are several. */
export function members(): ISection {
  const section = tableFold('Replicas', 2);
  const update = (state: IPanelState) =>
    section.draw(state.members ?? NO_TABLE);
  return { element: section.element, update };
}

/** A table with a title, hidden while it has fewer rows than `least`. */
function tableFold(title: string, least = 1) {
  const element = h('details.fold', { open: true });
  const draw = onChange(({ columns, rows }: PanelTable) => {
    element.hidden = rows.length < least;
    if (!element.hidden) {
      element.replaceChildren(
        h('summary', {}, `${title} (${rows.length})`),
        scrolled(title, columns, rows)
      );
    }
  });
  return { element, draw };
}

/** A long text may be cut off in its cell. */
const titleOf = (cell: string) => (cell.length > 30 ? cell : null);

/** A table that may be larger than its place: it scrolls by the arrow keys too. */
export function scrolled(
  label: string,
  columns: readonly string[],
  rows: readonly string[][]
): HTMLElement {
  const head = columns.map(name => h('th', { scope: 'col' }, name));
  const body = rows.map(row =>
    h('tr', {}, ...row.map(cell => h('td', { title: titleOf(cell) }, cell)))
  );
  const table = h(
    'table.table',
    {},
    h('thead', {}, h('tr', {}, ...head)),
    h('tbody', {}, ...body)
  );
  const attributes = { role: 'region', 'aria-label': label, tabindex: 0 };
  return h('div.scroll', attributes, table);
}

export function outputs(): ISection {
  const list = h('ul.outputs');
  const title = h('div.foldtitle', {}, 'Outputs');
  const element = h('div.fold', {}, title, list);
  const draw = onChange((items: PanelOutput[]) => {
    element.hidden = items.length === 0;
    const lines = items.map(({ what, path, size }) =>
      h(
        'li',
        {},
        h('span.what', {}, what),
        h('code.path', { title: path }, path),
        h('span.muted', {}, size),
        copyButton(path)
      )
    );
    list.replaceChildren(...lines);
  });
  return { element, update: state => draw(state.outputs ?? []) };
}

export function copyButton(text: string): HTMLButtonElement {
  const copy = async () => {
    const isCopied = await toClipboard(text);
    element.textContent = isCopied ? 'Copied' : 'Copy';
    setTimeout(() => (element.textContent = 'Copy'), 1500);
  };
  const element = button('Copy', () => void copy());
  element.setAttribute('aria-label', `Copy ${text}`);
  return element;
}

async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page that is not served over HTTPS has no clipboard, as Lab on another machine's address.
    const field = h('textarea', {}, text);
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand('copy');
    field.remove();
    return isCopied;
  }
}

export function logTail(): {
  element: HTMLElement;
  update(text: string): void;
} {
  const attributes = { tabindex: 0, 'aria-label': 'Log of the run' };
  const text = h('pre.log', attributes);
  const toEnd = () => {
    if (follow.checked) {
      text.scrollTop = text.scrollHeight;
    }
  };
  const follow = h('input', { type: 'checkbox', onchange: toEnd });
  follow.checked = true;
  const element = h(
    'details.fold',
    { ontoggle: toEnd },
    h('summary', {}, 'Log'),
    h('label.follow', {}, follow, 'follow'),
    text
  );
  const update = onChange((log: string) => {
    text.textContent = log || 'The log is empty so far.';
    toEnd();
  });
  return { element, update };
}
