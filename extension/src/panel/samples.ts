import { PanelSampledRow, PanelSamples } from '../wire';
import { button, h, onChange } from './dom';
import { IPanelState } from './state';

const NO_SAMPLES: PanelSamples = {
  at: '',
  columns: [],
  rows: [],
  history: [],
  first: 0,
  total: 0
};

/**
 * The newest rows with their answers, a page of them: fields below each other where the panel is
 * narrow. `ask` gets the samples from a number on; without it only those of the state are shown.
 */
export function samples(ask: ((first: number) => void) | undefined): {
  element: HTMLElement;
  update(state: IPanelState, answer: PanelSamples | null): void;
} {
  const title = h('summary');
  const list = h('div.samples');
  const open = new Set<string>(); // Rows whose answers over the steps are shown; they stay so.
  let newest = NO_SAMPLES;
  let asked: PanelSamples | null = null;
  const pager = samplePager(ask !== undefined, first => {
    if (first > 0) {
      ask?.(first);
    }
    draw();
  });
  const element = h('details.fold', { open: true }, title, list, pager.element);
  const show = onChange<PanelSamples>(({ at, columns, rows, history = [] }) => {
    element.hidden = rows.length === 0;
    title.textContent = `Samples ${at}`;
    const named = columns.indexOf('row');
    const elements = rows.map((row, index) => {
      const name = named < 0 ? `${index + 1}` : row[named];
      const earlier = history.find(item => item.row === name);
      const field = sample(columns, row);
      if (earlier) {
        field.append(overSteps(earlier, open));
      }
      return field;
    });
    list.replaceChildren(...elements);
  });
  const draw = () => show(pager.pick(newest, asked));
  function update(state: IPanelState, answer: PanelSamples | null): void {
    newest = state.samples ?? NO_SAMPLES;
    asked = answer;
    draw();
  }
  return { element, update };
}

/**
 * The line below a page of samples; `turn` is called with the first sample of the page that is to
 * be shown.
 */
function samplePager(canPage: boolean, turn: (first: number) => void) {
  const text = h('span.muted', { role: 'status' });
  let first = 0;
  let size = 1;
  let shown = NO_SAMPLES;
  const by = (pages: number) => () => {
    first = Math.max(0, first + pages * size);
    turn(first);
  };
  const previous = button('Previous', by(-1));
  const next = button('Next', by(1));
  previous.hidden = next.hidden = !canPage;
  const element = h(
    'div.pager',
    { role: 'group', 'aria-label': 'Pages of samples' },
    previous,
    next,
    text
  );

  /** The page to show: the newest one, or what was asked for; until that is there, the one before. */
  function pick(
    newest: PanelSamples,
    answer: PanelSamples | null
  ): PanelSamples {
    size = Math.max(1, newest.rows.length);
    if (first === 0) {
      shown = newest;
    } else if (answer?.first === first) {
      shown = answer;
    }
    const { first: from = 0, rows, total = rows.length } = shown;
    const [low, high, all] = [from + 1, from + rows.length, total].map(number =>
      number.toLocaleString('en')
    );
    element.hidden = total <= rows.length;
    text.textContent = `${low} to ${high} of ${all} samples`;
    previous.disabled = first === 0;
    next.disabled = first + size >= total;
    return shown;
  }
  return { element, pick };
}

/** The answers to a row from the first to the last; words that the one before lacks are marked. */
function overSteps(
  { row, answers }: PanelSampledRow,
  open: Set<string>
): HTMLElement {
  const lines = answers.map(({ at, words, more }) => {
    const texts = words.map(([text, isNew]) =>
      h(isNew ? 'mark' : 'span', {}, text)
    );
    return h(
      'div.answer',
      { role: 'listitem' },
      h('span.label', {}, `step ${at}`),
      h('div.sampletext', { tabindex: 0 }, ...texts, more)
    );
  });
  const title = `${answers.length} answers since step ${answers[0].at}`;
  const element = h(
    'details.answers',
    { open: open.has(row) },
    h('summary', {}, title),
    h('div', { role: 'list' }, ...lines)
  );
  element.addEventListener('toggle', () =>
    element.open ? open.add(row) : open.delete(row)
  );
  return element;
}

function sample(columns: readonly string[], row: readonly string[]) {
  // Texts of a model are never markup: `h` makes text nodes.
  const fields = row.map((text, index) => {
    const name = columns[index];
    return h(
      `div.samplefield.sample-${name.replace(/[^a-z]+/gi, '-')}`,
      {},
      h('div.label', {}, name),
      h('div.sampletext', { tabindex: 0 }, text || '–')
    );
  });
  return h('div.sample', { role: 'group' }, ...fields);
}
