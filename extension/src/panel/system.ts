import uPlot from 'uplot';

import { PanelStall, PanelSystem, PanelSystemChart, PanelTable } from '../wire';
import { download } from './chartTools';
import { button, h, onChange } from './dom';
import { Chart, IPlan, Zoom } from './plot';
import { scrolled } from './sections';
import { IPanelState, ISection } from './state';

/** A panel that is narrower has this row folded until somebody opens it. */
const WIDE_PX = 700;
const HEIGHT = 120;

/** The second row of charts: hosts, GPUs and workers. Hidden before the first sample. */
export class SystemCharts implements ISection {
  constructor() {
    const draw = () => this.draw();
    this.element = h(
      'details.fold.system',
      { ontoggle: draw, hidden: true },
      h('summary', {}, 'System: GPUs, hosts and workers'),
      this._grid,
      this._note,
      this._tables
    );
    this._observer.observe(this.element);
  }

  readonly element: HTMLDetailsElement;

  update({ system }: IPanelState): void {
    this._system = system ?? null;
    this.element.hidden = !system?.x.length;
    this.draw();
  }

  /** A legend keeps the colours it was made with, so a new theme needs new charts. */
  redraw(): void {
    this._charts.forEach(({ chart }) => chart.clear());
    this.draw();
  }

  dispose(): void {
    this._observer.disconnect();
    this._charts.forEach(({ chart }) => chart.dispose());
  }

  private draw(): void {
    const system = this._system;
    if (!system || this.element.hidden || !this.element.open) {
      return;
    }
    const { x } = system;
    this._zoom.bounds = [x[0], Math.max(x[x.length - 1], x[0] + 0.1)];
    for (const [key, { card, chart }] of this._charts) {
      if (!system.charts.some(other => other.key === key)) {
        chart.dispose();
        card.remove();
        this._charts.delete(key);
      }
    }
    for (const one of system.charts) {
      const { card, chart } = this._charts.get(one.key) ?? this.newCard(one);
      this._grid.append(card);
      chart.show(planOf(one, system));
    }
    this._note.textContent = system.note;
    this.drawTables({ workers: system.workers, hosts: system.hosts });
  }

  private newCard({ key, title }: PanelSystemChart) {
    const chart = new Chart(this._zoom, HEIGHT);
    const head = h('div.cardhead', {}, h('span.cardtitle', {}, title));
    const card = h('div.card', { 'data-chart': key }, head, chart.element);
    this._charts.set(key, { card, chart });
    return { card, chart };
  }

  /** Open where there is room, until somebody has opened or closed it. */
  private place(): void {
    if (!this._placed && this.element.clientWidth > 0) {
      this._placed = true;
      this.element.open = this.element.clientWidth >= WIDE_PX;
    }
  }

  private drawTables = onChange(
    (tables: { workers: PanelTable; hosts: PanelTable }) => {
      const { workers, hosts } = tables;
      this._tables.replaceChildren(
        scrolled('Workers', workers.columns, workers.rows),
        scrolled('Hosts', hosts.columns, hosts.rows)
      );
    }
  );

  private _system: PanelSystem | null = null;
  private _zoom: Zoom = new Zoom(() =>
    this._charts.forEach(({ chart }) => chart.rescale())
  );
  private _charts = new Map<string, { card: HTMLElement; chart: Chart }>();
  private _grid = h('div.chartgrid');
  private _note = h('p.chartnote');
  private _tables = h('div.systemtables');
  private _placed = false;
  private _observer = new ResizeObserver(() => this.place());
}

function planOf(
  { title, unit, lines }: PanelSystemChart,
  system: PanelSystem
): IPlan {
  const data = [system.x, ...lines.map(({ values }) => values)];
  return {
    label: `${title}, ${system.x_label}`,
    data: data as unknown as uPlot.AlignedData,
    lines: lines.map(({ label }, color) => ({ label, color })),
    x: { key: 'time', label: system.x_label, values: system.x },
    unit,
    log: false,
    fromZero: true,
    note: '',
    text: 'No numbers yet.'
  };
}

/**
 * Where the workers stand while no step ends, and what to do; hidden while steps do. Without
 * `restart` there is no button for it.
 */
export function stall(restart?: () => Promise<void>): ISection {
  let runId = '';
  const message = h('div.message');
  const groups = h('div');
  const stacks = h('pre.stacks', { tabindex: 0 });
  const fold = h('details', {}, h('summary', {}, 'Stacks'), stacks);
  const dump = button('Dump stacks', () =>
    download(`${runId}-stacks.txt`, new Blob([stacks.textContent ?? '']))
  );
  dump.title = 'Save the stacks of all ranks as a text file';
  const element = h(
    'div.box.warn.stall',
    { role: 'alert', hidden: true },
    message,
    groups,
    h('div.stop', {}, restart ? restartButton(restart) : null, dump),
    fold
  );
  const draw = onChange((shown: PanelStall | null) => {
    element.hidden = shown === null;
    if (shown) {
      const { columns, rows } = shown.groups;
      message.textContent = shown.message;
      groups.replaceChildren(scrolled('Where ranks stand', columns, rows));
      stacks.textContent = shown.stacks;
    }
  });
  const update = (state: IPanelState) => {
    runId = state.run_id ?? '';
    draw(state.stall ?? null);
  };
  return { element, update };
}

/** Asks for confirmation in its place: what is not in a checkpoint is lost. */
function restartButton(restart: () => Promise<void>): HTMLElement {
  const element = h('span.stop');
  const show = (...children: HTMLElement[]) =>
    element.replaceChildren(...children);
  const begin = button('Restart from the last checkpoint', () => {
    show(
      h('span', {}, 'End it? Steps since that checkpoint are lost.'),
      yes,
      no
    );
    no.focus();
  });
  const yes = button('Restart', () => {
    show(h('span.muted', { role: 'status' }, 'Ending the run…'));
    void restart().finally(() => show(begin));
  });
  yes.classList.add('llmops-danger');
  const no = button('Wait', () => {
    show(begin);
    begin.focus();
  });
  show(begin);
  return element;
}
