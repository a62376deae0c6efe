import {
  PanelProfile,
  PanelProfiles,
  PanelTable,
  ProfileDetail
} from '../wire';
import { button, h, onChange } from './dom';
import { FlameGraph } from './flame';
import { copyButton, scrolled } from './sections';
import { IPanelState } from './state';

/** Steps of a profile that this panel asks for. */
const STEPS = 3;
const NOTHING: PanelProfiles = {
  can: false,
  now: '',
  done: [],
  operators: { columns: [], rows: [] }
};

interface IProfileActions {
  /** Ask the run to profile its next steps; resolves once it is asked, or has refused. */
  profile?: (steps: number) => Promise<void>;
  /** Ask for one profile; the answer comes with an update. */
  askForProfile?: (number: number) => void;
}

/**
 * The button that asks for a profile, what is profiled, and the profiles: operators, calls, stacks
 * and the place of their files.
 */
export function profiles({ profile, askForProfile }: IProfileActions): {
  element: HTMLElement;
  update(state: IPanelState, detail: ProfileDetail | null): void;
} {
  let isAsking = false;
  let now = NOTHING;
  const status = h('span.muted', { role: 'status' });
  const ask = button(`Profile the next ${STEPS} steps`, () => {
    isAsking = true;
    drawHead();
    void profile?.(STEPS).finally(() => {
      isAsking = false;
      drawHead();
    });
  });
  ask.title = 'PyTorch Profiler on all ranks; these steps are slower';
  const head = h('div.profilehead', {}, ask, status);
  const shown = shownProfile(number => askForProfile?.(number));
  const title = h('div.foldtitle', {}, 'Profiler');
  const element = h(
    'div.fold.profiles',
    { hidden: true },
    title,
    head,
    shown.element
  );
  function drawHead(): void {
    ask.hidden = !profile || !now.can;
    ask.disabled = isAsking || now.now !== '';
    status.textContent = now.now || (isAsking ? 'Asking the run…' : '');
    head.hidden = ask.hidden && !status.textContent;
    element.hidden = head.hidden && now.done.length === 0;
  }
  const draw = onChange((value: PanelProfiles) => {
    now = value;
    drawHead();
  });
  function update(state: IPanelState, detail: ProfileDetail | null): void {
    const value = state.profiles ?? NOTHING;
    draw(value);
    shown.update(value, detail);
  }
  return { element, update };
}

/** One of the profiles: the newest until another one is chosen. */
function shownProfile(ask: (number: number) => void) {
  let chosen: number | null = null;
  let pending: number | null = null;
  let list: readonly PanelProfile[] = [];
  const select = h('select.select', {
    'aria-label': 'Profile',
    onchange: () => {
      chosen = Number(select.value);
      draw();
    }
  });
  const note = h('p.chartnote');
  const place = h('div.outputs');
  const operators = h('div.operators');
  const flames = new FlameGraph();
  const groups = h('div.stall');
  const stacks = h('pre.stacks', { tabindex: 0 });
  const fold = h('details', {}, h('summary', {}, 'Stacks'), stacks);
  const summary = h('summary');
  const element = h(
    'details',
    {
      // Opened again it asks again: an answer may not have come.
      ontoggle: () => {
        pending = null;
        draw();
      }
    },
    summary,
    h('div.profilehead', {}, select),
    note,
    place,
    operators,
    flames.element,
    groups,
    fold
  );
  let newest: PanelTable = NOTHING.operators;
  let detail: ProfileDetail | null = null;

  const fill = onChange((items: PanelProfile[]) => {
    const options = items.map(({ number, title }) =>
      h('option', { value: number }, title)
    );
    select.replaceChildren(...options);
    select.hidden = items.length < 2;
  });
  const drawAbout = onChange(({ title, note: text, path }: PanelProfile) => {
    summary.textContent = `Profile of ${title}`;
    note.textContent = text;
    place.replaceChildren(
      h('span', {}, 'Timelines for ui.perfetto.dev: '),
      h('code.path', { title: path }, path),
      copyButton(path)
    );
  });
  const drawOperators = onChange(({ columns, rows }: PanelTable) => {
    const label = 'Operators by time of their own, rank 0';
    operators.replaceChildren(
      h('div.label', {}, label),
      scrolled(label, columns, rows)
    );
  });
  const drawDetail = onChange((shown: ProfileDetail | null) => {
    flames.show(shown?.calls ?? []);
    const { columns = [], rows = [] } = shown?.groups ?? {};
    const label = 'Where all ranks stood in one of these steps (py-spy)';
    groups.replaceChildren(
      ...(rows.length
        ? [h('div.label', {}, label), scrolled(label, columns, rows)]
        : [])
    );
    stacks.textContent = shown?.stacks ?? '';
    fold.hidden = !shown?.stacks;
  });

  function draw(): void {
    element.hidden = list.length === 0;
    const profile =
      list.find(({ number }) => number === chosen) ?? list[list.length - 1];
    if (!profile) {
      return;
    }
    const { number } = profile;
    fill([...list]);
    select.value = String(number);
    drawAbout(profile);
    const isKnown = detail?.number === number;
    const isNewest = profile === list[list.length - 1];
    if (isKnown || isNewest) {
      drawOperators(isKnown && detail ? detail.operators : newest);
    }
    if (element.open && !isKnown && pending !== number) {
      pending = number;
      ask(number);
    }
    drawDetail(isKnown ? detail : null);
  }
  function update(value: PanelProfiles, answer: ProfileDetail | null): void {
    list = value.done;
    newest = value.operators;
    if (answer) {
      detail = answer;
      pending = answer.number;
    }
    draw();
  }
  return { element, update };
}
