import { CallTime } from '../wire';
import { button, h } from './dom';

const ROW_PX = 19;
/** Share of the width below which a call is not drawn. */
const LEAST = 0.001;
const SVG = 'http://www.w3.org/2000/svg';
const MOVES = new Set([
  'ArrowUp',
  'ArrowDown',
  'ArrowLeft',
  'ArrowRight',
  'Enter',
  ' ',
  'Escape'
]);
const KEYS =
  'Arrow keys move between calls: up to the caller, down into it. Enter shows only this call, Escape all.';

export type TimeOf = 'cpu' | 'device';

/** A call in its place; all are shares of the width, from the left. */
export interface IPlaced {
  index: number;
  depth: number;
  left: number;
  width: number;
}

/** The time of a call with what it calls. */
function timeOf({ cpu_s, device_s }: CallTime, what: TimeOf): number {
  return what === 'cpu' ? cpu_s : (device_s ?? 0);
}

/**
 * Place calls below their callers, those with most time first; with `root` only that call, its
 * callers above it at the whole width.
 */
export function placed(
  calls: readonly CallTime[],
  what: TimeOf,
  root: number | null = null
): IPlaced[] {
  const inside = new Map<number | null, number[]>();
  calls.forEach(({ caller }, index) => {
    const others = inside.get(caller);
    if (others) {
      others.push(index);
    } else {
      inside.set(caller, [index]);
    }
  });
  for (const others of inside.values()) {
    others.sort((a, b) => timeOf(calls[b], what) - timeOf(calls[a], what));
  }
  const places: IPlaced[] = [];
  const place = (
    index: number,
    depth: number,
    left: number,
    scale: number
  ): void => {
    const width = timeOf(calls[index], what) * scale;
    if (width < LEAST) {
      return;
    }
    places.push({ index, depth, left, width });
    let from = left;
    for (const call of inside.get(index) ?? []) {
      place(call, depth + 1, from, scale);
      from += timeOf(calls[call], what) * scale;
    }
  };
  if (root === null) {
    const tops = inside.get(null) ?? [];
    const whole = tops.reduce((sum, at) => sum + timeOf(calls[at], what), 0);
    let from = 0;
    for (const top of tops) {
      place(top, 0, from, whole ? 1 / whole : 0);
      from += whole ? timeOf(calls[top], what) / whole : 0;
    }
    return places;
  }
  const above: number[] = [];
  for (let at = calls[root].caller; at !== null; at = calls[at].caller) {
    above.unshift(at);
  }
  above.forEach((index, depth) =>
    places.push({ index, depth, left: 0, width: 1 })
  );
  const own = timeOf(calls[root], what);
  place(root, above.length, 0, own ? 1 / own : 0);
  return places;
}

/** The tree of calls with callers on top. Names are text of the run: never markup. */
export class FlameGraph {
  constructor() {
    this._what = h('select.select', {
      'aria-label': 'Time of the calls',
      onchange: () => this.choose(this._what.value as TimeOf)
    });
    this._whole = button('Show all', () => this.zoom(null));
    const head = h(
      'div.flamehead',
      {},
      h('span.cardtitle', {}, 'Calls by time'),
      this._what,
      this._whole,
      this._text
    );
    this._svg = svg('svg', {
      class: 'llmops-flame',
      role: 'tree',
      'aria-label': 'Calls by time',
      'aria-description': KEYS
    });
    this._svg.addEventListener('keydown', event => this.onKey(event));
    const box = h('div.flamebox', {}, this._svg);
    this.element = h('div.flames', { hidden: true }, head, box);
  }

  readonly element: HTMLElement;

  show(calls: readonly CallTime[]): void {
    this._calls = calls;
    this.element.hidden = calls.length === 0;
    const onGpu = calls.some(({ device_s }) => Boolean(device_s));
    const options = [
      ...(onGpu ? [h('option', { value: 'device' }, 'GPU time')] : []),
      h('option', { value: 'cpu' }, 'CPU time')
    ];
    this._what.replaceChildren(...options);
    this._what.hidden = !onGpu;
    this.choose(onGpu ? 'device' : 'cpu');
  }

  private choose(what: TimeOf): void {
    this._time = this._what.value = what;
    this.zoom(null);
  }

  private zoom(root: number | null): void {
    this._root = root;
    this._whole.disabled = root === null;
    this._places = placed(this._calls, this._time, root);
    const focused = this._svg.contains(document.activeElement);
    const nodes = this._places.map(place => this.node(place));
    this._nodes = new Map(
      this._places.map(({ index }, at) => [index, nodes[at]])
    );
    const depth = Math.max(0, ...this._places.map(one => one.depth)) + 1;
    this._svg.setAttribute('height', String(depth * ROW_PX));
    this._svg.replaceChildren(...nodes);
    const first = root ?? this._places[0]?.index;
    if (first !== undefined) {
      this.mark(first, focused);
    }
  }

  private node({ index, depth, left, width }: IPlaced): SVGElement {
    const call = this._calls[index];
    // A nested svg is as wide as its share of the page and cuts off what is longer.
    const node = svg('svg', {
      class: `llmops-call llmops-call-${kindOf(call.name, depth)}`,
      x: percent(left),
      width: percent(width),
      y: String(depth * ROW_PX),
      height: String(ROW_PX - 1),
      role: 'treeitem',
      tabindex: '-1',
      'aria-level': String(depth + 1),
      'aria-label': this.words(call)
    });
    const title = svg('title');
    title.textContent = this.words(call);
    const name = svg('text', { x: '4', y: '13' });
    name.textContent = width > 0.01 ? call.name : '';
    node.append(title, svg('rect', { width: '100%', height: '100%' }), name);
    node.addEventListener('click', () => {
      this.mark(index, true);
      this.zoom(index === this._root ? null : index);
    });
    node.addEventListener('mouseenter', () => this.say(index));
    return node;
  }

  /** One call is in the order of the Tab key; arrow keys lead to the others. */
  private mark(index: number, focus: boolean): void {
    this._nodes.get(this._marked)?.setAttribute('tabindex', '-1');
    this._marked = index;
    const node = this._nodes.get(index);
    node?.setAttribute('tabindex', '0');
    this.say(index);
    if (focus) {
      node?.focus();
    }
  }

  private say(index: number): void {
    this._text.textContent = this.words(this._calls[index]);
  }

  private words(call: CallTime): string {
    const { name, calls, cpu_s, self_cpu_s, device_s, self_device_s } = call;
    const tops = this._calls.filter(({ caller }) => caller === null);
    const whole = tops.reduce((sum, top) => sum + timeOf(top, this._time), 0);
    const share = whole ? (100 * timeOf(call, this._time)) / whole : 0;
    const times = call.caller === null ? '' : `, ${many(calls, 'call')}`;
    const gpu =
      device_s === null
        ? ''
        : `, GPU ${time(device_s)} (${time(self_device_s)} of its own)`;
    return `${name}${times}: ${share.toFixed(1)} %, CPU ${time(cpu_s)} (${time(self_cpu_s)} of its own)${gpu}`;
  }

  private onKey(event: KeyboardEvent): void {
    const { key } = event;
    if (!MOVES.has(key) || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    if (key === 'Escape') {
      this.zoom(null);
    } else if (key === 'Enter' || key === ' ') {
      this.zoom(this._marked === this._root ? null : this._marked);
    } else {
      const next = this.next(key);
      if (next !== undefined) {
        this.mark(next, true);
      }
    }
  }

  private next(key: string): number | undefined {
    const marked = this._marked;
    const { caller } = this._calls[marked];
    if (key === 'ArrowUp') {
      return caller ?? undefined;
    }
    const of = (above: number | null) =>
      this._places
        .map(({ index }) => index)
        .filter(index => this._calls[index].caller === above);
    if (key === 'ArrowDown') {
      return of(marked)[0];
    }
    const beside = of(caller);
    return beside[beside.indexOf(marked) + (key === 'ArrowRight' ? 1 : -1)];
  }

  private _calls: readonly CallTime[] = [];
  private _time: TimeOf = 'cpu';
  private _root: number | null = null;
  private _places: IPlaced[] = [];
  private _nodes = new Map<number, SVGElement>();
  private _marked = 0;
  private _text = h('span.muted.flametext', { role: 'status' });
  private _what: HTMLSelectElement;
  private _whole: HTMLButtonElement;
  private _svg: SVGElement;
}

function svg(name: string, attributes: Record<string, string> = {}) {
  const element = document.createElementNS(SVG, name) as SVGElement;
  for (const [key, value] of Object.entries(attributes)) {
    element.setAttribute(key, value);
  }
  return element;
}

function percent(share: number): string {
  return `${(100 * share).toFixed(3)}%`;
}

/** What a name is of, for its colour. */
function kindOf(name: string, depth: number): string {
  if (depth === 0) {
    return 'thread';
  }
  if (/Backward\d*$|^backward$|AccumulateGrad$/.test(name)) {
    return 'backward';
  }
  return /^[A-Z]\w*(\.forward)?$/.test(name)
    ? 'module'
    : name.startsWith('Optimizer.')
      ? 'optimizer'
      : 'operator';
}

function many(count: number, word: string): string {
  return `${count.toLocaleString('en')} ${word}${count === 1 ? '' : 's'}`;
}

function time(seconds: number | null): string {
  if (seconds === null) {
    return '–';
  }
  return seconds >= 1
    ? `${seconds.toFixed(2)} s`
    : `${(1000 * seconds).toFixed(2)} ms`;
}
