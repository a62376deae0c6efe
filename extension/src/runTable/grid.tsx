import * as React from 'react';

import { starredIcon } from '../icons';
import { keptFrom } from '../runs/model';
import { trans } from '../trans';
import { Name, StateBadge } from '../ui/parts';
import { RunTableColumn, RunTableLine, RunTableRun } from '../wire';
import { colourOf } from './colours';
import { Head } from './head';
import { RunTableModel } from './model';
import { IGridProps } from './props';

export const LINE_PX = 28;
/** Browsers cannot make an element higher than some ten million pixels. */
const MAX_PX = 8_000_000;

/**
 * The lines in sight of a table that may have many thousands.
 */
export function Grid(props: IGridProps): JSX.Element {
  const { model } = props;
  const answer = model.answer;
  const scroller = React.useRef<HTMLDivElement>(null);
  const [top, setTop] = React.useState(0);
  const [height, setHeight] = React.useState(600);
  React.useEffect(() => {
    const element = scroller.current;
    if (!element) {
      return;
    }
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const numLines = Math.min(
    answer?.num_lines ?? 0,
    Math.floor(MAX_PX / LINE_PX)
  );
  const first = Math.max(0, Math.floor(top / LINE_PX) - 4);
  const count = Math.ceil(height / LINE_PX) + 8;
  const last = Math.min(numLines, first + count);
  React.useEffect(() => model.show(first, count), [model, first, count]);
  const indices = Array.from(
    { length: Math.max(0, last - first) },
    (_, i) => first + i
  );
  const columns = answer?.columns ?? [];
  // Only rows of a tree can be open or closed.
  const isGrouped = model.state.group !== '';
  return (
    <div
      ref={scroller}
      className="llmops-runtable-scroll"
      tabIndex={0}
      role={isGrouped ? 'treegrid' : 'grid'}
      aria-label={trans.__('Runs')}
      aria-rowcount={numLines + 1}
      aria-colcount={columns.length + 1}
      aria-multiselectable
      aria-activedescendant={
        model.active >= first && model.active < last
          ? lineId(model.active)
          : undefined
      }
      onScroll={event => setTop(event.currentTarget.scrollTop)}
      onKeyDown={event => onKey(event, props, scroller.current, height)}
    >
      <Head {...props} columns={columns} />
      <div
        className="llmops-runtable-lines"
        role="rowgroup"
        style={{ height: numLines * LINE_PX }}
      >
        {indices.map(index => (
          <Line key={index} {...props} index={index} columns={columns} />
        ))}
      </div>
    </div>
  );
}

function lineId(index: number): string {
  return `llmops-runtable-line-${index}`;
}

function Line(
  props: IGridProps & { index: number; columns: readonly RunTableColumn[] }
): JSX.Element {
  const { model, index } = props;
  const line = model.line(index);
  const style = { top: index * LINE_PX };
  const shared = {
    id: lineId(index),
    role: 'row',
    style,
    'aria-rowindex': index + 2,
    'data-active': index === model.active
  };
  if (line?.group) {
    const { key, text, count, is_closed } = line.group;
    return (
      <div
        {...shared}
        className="llmops-runtable-line llmops-runtable-group"
        aria-level={1}
        aria-expanded={!is_closed}
        onClick={() => model.toggleGroup(key)}
      >
        <div role="gridcell" aria-colspan={props.columns.length + 1}>
          <span aria-hidden="true">{is_closed ? '▸' : '▾'}</span> {text}{' '}
          <span className="llmops-runtable-count">{count}</span>
        </div>
      </div>
    );
  }
  if (!line?.run) {
    return (
      <div {...shared} className="llmops-runtable-line">
        <div role="gridcell">…</div>
      </div>
    );
  }
  const { run } = line;
  return (
    <div
      {...shared}
      className="llmops-runtable-line"
      data-run-id={run.run_id}
      aria-level={model.state.group ? 2 : undefined}
      aria-selected={model.selected.has(run.run_id)}
      onClick={event => onClick(event, props, run)}
      onDoubleClick={() => props.open(run.run_id)}
      onContextMenu={event => props.menu(run.run_id, event)}
    >
      <NameCell {...props} run={run} />
      {run.cells.map((text, at) => (
        <Cell key={at} column={props.columns[at]} text={text} />
      ))}
    </div>
  );
}

function onClick(
  event: React.MouseEvent,
  { model, index }: IGridProps & { index: number },
  run: RunTableRun
): void {
  if (event.shiftKey) {
    selectRange(model, model.active, index);
  } else if (event.ctrlKey || event.metaKey) {
    model.select(run.run_id, !model.selected.has(run.run_id));
  }
  model.activate(index);
}

/** Those between two lines that this page has. */
function selectRange(model: RunTableModel, one: number, other: number): void {
  for (let i = Math.min(one, other); i <= Math.max(one, other); i++) {
    const run = model.line(i)?.run;
    if (run) {
      model.select(run.run_id, true);
    }
  }
}

function NameCell(props: IGridProps & { run: RunTableRun }): JSX.Element {
  const { model, run, open } = props;
  return (
    <div className="llmops-runtable-name" role="gridcell">
      <input
        type="checkbox"
        tabIndex={-1}
        checked={model.selected.has(run.run_id)}
        aria-label={trans.__('Select %1', run.label)}
        onClick={event => event.stopPropagation()}
        onChange={event => model.select(run.run_id, event.target.checked)}
      />
      <span
        className="llmops-runtable-swatch"
        style={{ background: colourOf(run.tone, run.colour) }}
      />
      <button
        type="button"
        tabIndex={-1}
        className="llmops-runtable-open"
        title={`${run.label}\n${run.run_id}`}
        onClick={() => open(run.run_id)}
      >
        <Name text={run.label} from={keptFrom(run.label)} />
      </button>
      {run.config && (
        <span className="llmops-runtable-config" title={run.config}>
          {run.config}
        </span>
      )}
      {run.starred && (
        <starredIcon.react tag="span" className="llmops-runtable-star" />
      )}
      {run.tags.slice(0, 3).map(tag => (
        <span key={tag} className="llmops-runtable-tag" title={tag}>
          {tag}
        </span>
      ))}
    </div>
  );
}

function Cell(props: {
  column: RunTableColumn | undefined;
  text: string;
}): JSX.Element {
  const { column, text } = props;
  return (
    <div
      className="llmops-runtable-cell"
      role="gridcell"
      data-type={column?.type}
      title={text}
    >
      {column?.name === 'state' ? <StateBadge state={text} /> : text}
    </div>
  );
}

function onKey(
  event: React.KeyboardEvent,
  { model, open }: IGridProps,
  scroller: HTMLDivElement | null,
  height: number
): void {
  const page = Math.max(1, Math.floor(height / LINE_PX) - 2);
  const moves: Record<string, number> = {
    ArrowDown: model.active + 1,
    ArrowUp: model.active - 1,
    PageDown: model.active + page,
    PageUp: model.active - page,
    Home: 0,
    End: Infinity
  };
  const line: RunTableLine | undefined = model.line(model.active);
  if (event.key in moves) {
    model.activate(moves[event.key]);
    if (event.shiftKey && line?.run) {
      model.select(line.run.run_id, true);
    }
    scrollTo(scroller, model.active);
  } else if (event.key === 'Enter' && line?.run) {
    open(line.run.run_id);
  } else if ((event.key === 'Enter' || event.key === ' ') && line?.group) {
    model.toggleGroup(line.group.key);
  } else if (event.key === ' ' && line?.run) {
    model.select(line.run.run_id, !model.selected.has(line.run.run_id));
  } else if (event.key === 'a' && (event.ctrlKey || event.metaKey)) {
    void model.selectAll();
  } else if (event.key === 'Escape' && model.selected.size > 0) {
    model.clearSelection();
  } else {
    return;
  }
  event.preventDefault();
  event.stopPropagation();
}

function scrollTo(scroller: HTMLDivElement | null, index: number): void {
  if (!scroller) {
    return;
  }
  const top = index * LINE_PX;
  const visible = scroller.clientHeight - 2 * LINE_PX;
  if (top < scroller.scrollTop) {
    scroller.scrollTop = top;
  } else if (top > scroller.scrollTop + visible) {
    scroller.scrollTop = top - visible;
  }
}
