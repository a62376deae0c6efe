import {
  caretDownEmptyThinIcon,
  caretUpEmptyThinIcon,
  copyIcon,
  downloadIcon
} from '@jupyterlab/ui-components';
import { Clipboard } from '@jupyterlab/apputils';
import * as React from 'react';

import { trans } from '../trans';
import { bytes } from '../ui/format';
import { Busy, EmptyState, IconButton, Loading } from '../ui/parts';
import { useChanges } from '../ui/hooks';
import { hitIn, ILogLine, LineRows } from './logLines';
import { LogModel } from './logModel';

const LINE_PX = 18;
const MARGIN_LINES = 40;
const LOAD_WITHIN_LINES = 300;
const PADDING_PX = 12;
const MEASURED = 'm'.repeat(100);

interface IProps {
  model: LogModel;
  attempts: readonly number[];
  isOver: boolean;
  download: (attempt?: number) => string;
}

/**
 * The log of a run. Only the lines in sight are elements, only a part of the log is loaded.
 */
export function LogView(props: IProps): JSX.Element {
  const { model } = props;
  useChanges(model);
  const scroller = React.useRef<HTMLDivElement>(null);
  const rows = React.useRef(new LineRows([], null));
  const [wraps, setWraps] = React.useState(false);
  const topOffset = () => {
    const row = Math.floor((scroller.current?.scrollTop ?? 0) / LINE_PX);
    return model.lines[rows.current.lineAt(row)]?.offset ?? model.start;
  };
  return (
    <div className="llmops-logview">
      <div className="llmops-logview-bar">
        <Search model={model} topOffset={topOffset} />
        <Tools {...props} wraps={wraps} setWraps={setWraps} />
      </div>
      <Loading
        isKnown={model.isKnown}
        trouble={model.trouble}
        text={trans.__('Reading the log…')}
      />
      {model.isKnown && (
        <Lines {...props} scroller={scroller} rows={rows} wraps={wraps} />
      )}
      <Position model={model} topOffset={topOffset} />
    </div>
  );
}

/** The rows of the loaded lines as wide as their box is now, and that box's height. */
function useRows(
  texts: readonly string[],
  wraps: boolean,
  scroller: React.RefObject<HTMLDivElement>
): { rows: LineRows; height: number } {
  const [height, setHeight] = React.useState(600);
  const [columns, setColumns] = React.useState<number | null>(null);
  const isDrawn = texts.length > 0;
  React.useLayoutEffect(() => {
    const box = scroller.current;
    if (!box) {
      return;
    }
    const sized = new ResizeObserver(() => {
      setHeight(box.clientHeight || 600);
      const measure = box.querySelector('.llmops-logview-measure');
      const wide = (measure?.getBoundingClientRect().width ?? 0) / 100;
      const room = box.clientWidth - 2 * PADDING_PX;
      setColumns(wide > 0 ? Math.max(1, Math.floor(room / wide)) : null);
    });
    sized.observe(box);
    return () => sized.disconnect();
  }, [isDrawn]);
  const rows = React.useMemo(
    () => new LineRows(texts, wraps ? columns : null),
    [texts, wraps, columns]
  );
  return { rows, height };
}

function Lines(
  props: IProps & {
    scroller: React.RefObject<HTMLDivElement>;
    rows: React.MutableRefObject<LineRows>;
    wraps: boolean;
  }
): JSX.Element {
  const { model, scroller, wraps } = props;
  const [top, setTop] = React.useState(0);
  const anchor = React.useRef<{ offset: number; rest: number } | null>(null);
  const lines = model.lines;
  const texts = React.useMemo(
    () => [
      ...lines.map(line => line.text),
      ...(model.partial ? [model.partial] : [])
    ],
    [lines, model.partial]
  );
  const count = texts.length;
  const { rows, height } = useRows(texts, wraps, scroller);
  props.rows.current = rows;

  // Lines that come or go above must not move what is being read.
  React.useLayoutEffect(() => {
    const box = scroller.current;
    if (!box) {
      return;
    }
    if (model.following) {
      box.scrollTop = box.scrollHeight;
    } else if (anchor.current) {
      const { offset, rest } = anchor.current;
      const index = lines.findIndex(line => line.offset >= offset);
      if (index >= 0) {
        box.scrollTop = rows.begin(index) * LINE_PX + rest;
      }
    }
  }, [rows, model.following]);

  const foundAt = model.found?.offset;
  React.useLayoutEffect(() => {
    const box = scroller.current;
    const index = lines.findIndex(line => line.offset === foundAt);
    if (box && foundAt !== undefined && index >= 0) {
      const found = rows.begin(index) * LINE_PX;
      box.scrollTop = Math.max(0, found - box.clientHeight / 3);
      setTop(box.scrollTop);
    }
  }, [foundAt]);

  // A match may be far to the right in a long line.
  React.useLayoutEffect(() => {
    scroller.current
      ?.querySelector('.llmops-logview-found mark')
      ?.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [foundAt, top]);

  const scrolled = (box: HTMLDivElement) => {
    const index = rows.lineAt(Math.floor(box.scrollTop / LINE_PX));
    const rest = box.scrollTop - rows.begin(index) * LINE_PX;
    setTop(box.scrollTop);
    anchor.current = lines[index]
      ? { offset: lines[index].offset, rest }
      : null;
    const below = box.scrollHeight - box.scrollTop - box.clientHeight;
    if (model.following && below > 2 * LINE_PX) {
      model.following = false;
    }
    if (!model.isBusy && index < LOAD_WITHIN_LINES && model.start > 0) {
      void model.before();
    } else if (
      !model.isBusy &&
      below < LOAD_WITHIN_LINES * LINE_PX &&
      model.end < model.size &&
      !model.partial
    ) {
      void model.after();
    }
  };

  if (count === 0 && model.hasHidden) {
    return (
      <EmptyState title={trans.__('No lines of the run yet')}>
        {trans.__("“All lines” shows Ray's own lines.")}
      </EmptyState>
    );
  }
  if (count === 0) {
    return (
      <EmptyState title={trans.__('The log is empty')}>
        {props.isOver
          ? trans.__('The driver wrote nothing, or its log was not kept.')
          : trans.__('Lines appear as soon as the driver runs.')}
      </EmptyState>
    );
  }
  const inSight = (px: number) => rows.lineAt(Math.floor(px / LINE_PX));
  const first = Math.max(0, inSight(top) - MARGIN_LINES);
  const last = Math.min(count, inSight(top + height) + 1 + MARGIN_LINES);
  const tall = (index: number) => ({
    minHeight: (rows.begin(index + 1) - rows.begin(index)) * LINE_PX
  });
  return (
    <div
      ref={scroller}
      className="llmops-logview-lines"
      tabIndex={0}
      role="log"
      aria-label={trans.__('Log of the run')}
      aria-live="off"
      onScroll={event => scrolled(event.currentTarget)}
    >
      <span className="llmops-logview-measure" aria-hidden="true">
        {MEASURED}
      </span>
      <div style={{ height: rows.total * LINE_PX }}>
        <pre
          className={wraps ? 'llmops-mod-wrapped' : ''}
          style={{ transform: `translateY(${rows.begin(first) * LINE_PX}px)` }}
        >
          {lines.slice(first, last).map((line, nth) => (
            <div
              key={line.offset}
              style={tall(first + nth)}
              className={line.offset === foundAt ? 'llmops-logview-found' : ''}
            >
              {line.offset === foundAt ? (
                <Found line={line} model={model} />
              ) : (
                line.text || ' '
              )}
            </div>
          ))}
          {model.partial && last === count && (
            <div style={tall(count - 1)}>{model.partial}</div>
          )}
        </pre>
      </div>
    </div>
  );
}

/** The line that a search has found, with the match marked. */
function Found(props: { line: ILogLine; model: LogModel }): JSX.Element {
  const { text } = props.line;
  const { pattern } = props.model;
  const hit = pattern && hitIn(text, pattern);
  if (!hit) {
    return <>{text || ' '}</>;
  }
  return (
    <>
      {text.slice(0, hit[0])}
      <mark>{text.slice(...hit)}</mark>
      {text.slice(hit[1])}
    </>
  );
}

function Search(props: {
  model: LogModel;
  topOffset: () => number;
}): JSX.Element {
  const { model } = props;
  const [text, setText] = React.useState('');
  const [regex, setRegex] = React.useState(false);
  const find = (backwards: boolean) => {
    if (text) {
      const what = { text, regex, ignore_case: true, backwards };
      void model.find(what, model.from(backwards, props.topOffset()));
    }
  };
  return (
    <span className="llmops-logview-search">
      <input
        className="jp-mod-styled"
        type="search"
        placeholder={trans.__('Search the log')}
        aria-label={trans.__('Search the log')}
        value={text}
        onChange={event => setText(event.target.value)}
        onKeyDown={event => {
          if (event.key === 'Enter') {
            find(event.shiftKey);
          } else if (event.key === 'Escape') {
            model.cancel();
          }
        }}
      />
      <button
        type="button"
        className="llmops-logview-toggle"
        aria-pressed={regex}
        title={trans.__('Regular expression')}
        aria-label={trans.__('Regular expression')}
        onClick={() => setRegex(!regex)}
      >
        .*
      </button>
      <IconButton
        icon={caretUpEmptyThinIcon}
        label={trans.__('Previous match (Shift Enter)')}
        onClick={() => find(true)}
      />
      <IconButton
        icon={caretDownEmptyThinIcon}
        label={trans.__('Next match (Enter)')}
        onClick={() => find(false)}
      />
      <span role="status">{model.searched}</span>
    </span>
  );
}

function Tools(
  props: IProps & { wraps: boolean; setWraps: (wraps: boolean) => void }
): JSX.Element {
  const { model, attempts, download, wraps, setWraps } = props;
  const copy = () =>
    Clipboard.copyToSystem(model.lines.map(line => line.text).join('\n'));
  return (
    <span className="llmops-logview-tools">
      {attempts.length > 1 && (
        <select
          aria-label={trans.__('Attempt')}
          title={trans.__('Log of which attempt')}
          value={model.attempt ?? attempts[attempts.length - 1]}
          onChange={event => void model.choose(Number(event.target.value))}
        >
          {attempts.map(number => (
            <option key={number} value={number}>
              {trans.__('attempt %1', number)}
            </option>
          ))}
        </select>
      )}
      <label
        title={trans.__(
          "Show Ray's own lines too: those of level INFO, and the entrypoint"
        )}
      >
        <input
          type="checkbox"
          checked={model.showsAll}
          onChange={event => (model.showsAll = event.target.checked)}
        />
        {trans.__('All lines')}
      </label>
      <label title={trans.__('Break long lines at the edge')}>
        <input
          type="checkbox"
          checked={wraps}
          onChange={event => setWraps(event.target.checked)}
        />
        {trans.__('Wrap')}
      </label>
      <label title={trans.__('Scroll to new lines')}>
        <input
          type="checkbox"
          checked={model.following}
          onChange={event => (model.following = event.target.checked)}
        />
        {trans.__('Follow')}
      </label>
      <IconButton
        icon={copyIcon}
        label={trans.__('Copy the %1 loaded lines', model.lines.length)}
        onClick={copy}
      />
      <a
        className="llmops-lab-iconbutton"
        href={download(model.attempt)}
        download
        title={trans.__('Download the whole log')}
        aria-label={trans.__('Download the whole log')}
      >
        <downloadIcon.react tag="span" />
      </a>
    </span>
  );
}

/** Where in the whole log one is; a click goes anywhere, however long it is. */
function Position(props: {
  model: LogModel;
  topOffset: () => number;
}): JSX.Element | null {
  const { model } = props;
  const whole = model.start === 0 && model.end >= model.size - 1;
  if (!model.isKnown || model.size === 0) {
    return null;
  }
  const text = whole
    ? trans.__('%1, all of it loaded', bytes(model.size))
    : trans.__(
        '%1 to %2 of %3 loaded',
        bytes(model.start),
        bytes(model.end),
        bytes(model.size)
      );
  return (
    <div className="llmops-logview-position">
      {!whole && (
        <input
          type="range"
          min={0}
          max={1000}
          aria-label={trans.__('Position in the log')}
          aria-valuetext={text}
          title={trans.__('Go to a position in the log')}
          value={Math.round((1000 * model.start) / model.size)}
          onChange={event => {
            const part = Number(event.target.value) / 1000;
            void model.toOffset(Math.floor(part * model.size));
          }}
        />
      )}
      <span>{text}</span>
      {model.isBusy && <Busy text={trans.__('reading…')} />}
    </div>
  );
}
