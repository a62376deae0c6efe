import { LabIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { trans } from '../trans';
import { Trouble } from '../wire';

/**
 * One line that may be cut off; the whole text in the tooltip.
 */
export function Ellipsed(props: {
  text: string;
  title?: string;
  className?: string;
}): JSX.Element {
  return (
    <span
      className={`llmops-lab-ellipsed ${props.className ?? ''}`}
      title={props.title ?? props.text}
    >
      {props.text}
    </span>
  );
}

/**
 * A name that is cut off before the character `from`: what follows tells it from the others.
 */
export function Name(props: {
  text: string;
  from: number;
  className?: string;
}): JSX.Element {
  const { text, from, className } = props;
  return (
    <span className={`llmops-lab-name ${className ?? ''}`}>
      {from > 0 && <span>{text.slice(0, from)}</span>}
      <span>{text.slice(from)}</span>
    </span>
  );
}

/**
 * A coloured dot and a word; the word carries the meaning.
 */
export function StateBadge(props: {
  state: string;
  title?: string;
}): JSX.Element {
  const state = props.state.toLowerCase();
  return (
    <span
      className="llmops-lab-state"
      data-state={state}
      title={props.title ?? state}
    >
      {state}
    </span>
  );
}

/**
 * A small curve without axes; unknown values are left out.
 */
export function Sparkline(props: {
  values: readonly (number | null)[];
  label: string;
}): JSX.Element {
  return (
    <svg
      className="llmops-lab-sparkline"
      viewBox="0 0 100 24"
      preserveAspectRatio="none"
      role="img"
      aria-label={props.label}
    >
      <path d={sparkPath(props.values)} />
    </svg>
  );
}

/** @returns an SVG path inside 100 x 24; empty below two values */
export function sparkPath(values: readonly (number | null)[]): string {
  const known = values
    .map((value, index): [number, number] => [index, value ?? NaN])
    .filter(([, y]) => Number.isFinite(y));
  if (known.length < 2) {
    return '';
  }
  const xs = known.map(([x]) => x);
  const ys = known.map(([, y]) => y);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  const [y0, y1] = [Math.min(...ys), Math.max(...ys)];
  const place = ([x, y]: readonly [number, number]): string => {
    const left = ((x - x0) / (x1 - x0 || 1)) * 100;
    const top = y1 === y0 ? 12 : 22 - ((y - y0) / (y1 - y0)) * 20;
    return `${left.toFixed(1)},${top.toFixed(1)}`;
  };
  return `M${known.map(place).join('L')}`;
}

/**
 * Nothing to show: says so, and what to do about it.
 */
export function EmptyState(props: {
  title: string;
  children?: React.ReactNode;
}): JSX.Element {
  return (
    <div className="llmops-lab-empty">
      <div className="llmops-lab-empty-title">{props.title}</div>
      {props.children}
    </div>
  );
}

export function Busy(props: { text: string }): JSX.Element {
  return (
    <div className="llmops-lab-busy" role="status">
      <span className="llmops-lab-spinner" aria-hidden="true" />
      {props.text}
    </div>
  );
}

/**
 * What went wrong, and what to try; `stale` when older data is still shown below.
 */
export function TroubleBox(props: {
  trouble: Trouble;
  kind?: 'error' | 'warn';
  children?: React.ReactNode;
}): JSX.Element {
  const { message, remedy, problems } = props.trouble;
  const kind = props.kind ?? 'error';
  return (
    <div
      className={`llmops-lab-trouble llmops-lab-${kind}`}
      role={kind === 'error' ? 'alert' : 'status'}
    >
      <div className="llmops-lab-message">{message}</div>
      {problems.length > 0 && (
        <ul>
          {problems.map((problem, index) => (
            <li key={index}>
              {problem.path && <code>{problem.path}</code>} {problem.message}
              {problem.value && <> (value {problem.value})</>}
              {problem.suggestion && <>; {problem.suggestion}</>}
            </li>
          ))}
        </ul>
      )}
      {remedy && (
        <div className="llmops-lab-remedy">
          <b>Try:</b> {remedy}
        </div>
      )}
      {props.children}
    </div>
  );
}

/**
 * Where data are missing, or may be old: what went wrong, or that they are being read.
 */
export function Loading(props: {
  isKnown: boolean;
  trouble: Trouble | null;
  /** Said while nothing is known. */
  text: string;
  /** Shown with a trouble while older data are in sight. */
  children?: React.ReactNode;
}): JSX.Element | null {
  const { isKnown, trouble, text, children } = props;
  if (trouble) {
    return (
      <TroubleBox kind={isKnown ? 'warn' : 'error'} trouble={trouble}>
        {isKnown && children}
      </TroubleBox>
    );
  }
  return isKnown ? null : <Busy text={text} />;
}

/**
 * What is wider than its place: scrolled by the arrow keys too.
 */
export function Scrolled(props: {
  label: string;
  className: string;
  children: React.ReactNode;
}): JSX.Element {
  const { label, className, children } = props;
  return (
    <div className={className} role="region" aria-label={label} tabIndex={0}>
      {children}
    </div>
  );
}

/**
 * A button that shows only a picture: its words are in the tooltip and for screen readers.
 */
export function IconButton(props: {
  icon: LabIcon;
  label: string;
  onClick: (event: React.MouseEvent) => void;
  disabled?: boolean;
  pressed?: boolean;
}): JSX.Element {
  return (
    <button
      type="button"
      className="llmops-lab-iconbutton"
      title={props.label}
      aria-label={props.label}
      aria-pressed={props.pressed}
      disabled={props.disabled}
      onClick={event => {
        event.stopPropagation();
        props.onClick(event);
      }}
    >
      <props.icon.react tag="span" />
    </button>
  );
}

/**
 * A few lines of a text that may be long, and a button that shows all of it.
 */
export function Clamped(props: { text: string }): JSX.Element {
  const { text } = props;
  const box = React.useRef<HTMLDivElement>(null);
  const [isCut, setCut] = React.useState(false);
  const [isOpen, setOpen] = React.useState(false);
  React.useEffect(() => {
    const element = box.current;
    if (!element || isOpen) {
      return;
    }
    const measure = () =>
      setCut(element.scrollHeight > element.clientHeight + 1);
    measure();
    const resized = new ResizeObserver(measure);
    resized.observe(element);
    return () => resized.disconnect();
  }, [text, isOpen]);
  return (
    <>
      <div ref={box} className={isOpen ? '' : 'llmops-lab-clamped'}>
        {text}
      </div>
      {(isCut || isOpen) && (
        <button
          type="button"
          className="llmops-runs-link"
          aria-expanded={isOpen}
          onClick={() => setOpen(!isOpen)}
        >
          {isOpen ? trans.__('Show less') : trans.__('Show all')}
        </button>
      )}
    </>
  );
}
