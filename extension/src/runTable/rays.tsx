import * as React from 'react';

import { trans } from '../trans';
import { RunTableAxis, RunTableRay, RunTableRays } from '../wire';
import { toneColour } from './colours';
import { shortHeads } from './head';

const HEIGHT = 220;
const TOP = 34;
const BOTTOM = 190;
const SIDE = 70;

/**
 * Each run as a line over the columns: which values go together with a low loss.
 */
export function Rays(props: {
  rays: RunTableRays;
  selected: ReadonlySet<string>;
  open: (runId: string) => void;
}): JSX.Element {
  const { rays, selected, open } = props;
  const [hovered, setHovered] = React.useState<string | null>(null);
  const [width, element] = useWidth();
  const { axes } = rays;
  if (axes.length < 2) {
    return (
      <p className="llmops-runtable-hint">
        {trans.__(
          'Parallel coordinates need two columns with known values: choose some under Columns.'
        )}
      </p>
    );
  }
  const x = (at: number) =>
    SIDE + (at * (width - 2 * SIDE)) / Math.max(1, axes.length - 1);
  const heads = shortHeads(
    axes.map(({ name, label }) => ({
      label,
      source: name === label ? 'config' : 'figure'
    }))
  );
  const shown = rays.rays.find(({ run_id }) => run_id === hovered);
  return (
    <div className="llmops-runtable-rays" ref={element}>
      <svg
        width={width}
        height={HEIGHT}
        role="img"
        aria-label={trans.__(
          'Parallel coordinates of %1 runs',
          rays.rays.length
        )}
      >
        {rays.rays.map(ray => (
          <path
            key={ray.run_id}
            d={pathOf(ray, x)}
            style={ray.tone === null ? {} : { stroke: toneColour(ray.tone) }}
            data-run-id={ray.run_id}
            data-strong={ray.run_id === hovered || selected.has(ray.run_id)}
            onMouseEnter={() => setHovered(ray.run_id)}
            onMouseLeave={() => setHovered(null)}
            onClick={() => open(ray.run_id)}
          />
        ))}
        {axes.map((axis, at) => (
          <Axis key={axis.name} axis={axis} head={heads[at]} x={x(at)} />
        ))}
      </svg>
      <p className="llmops-runtable-hint" aria-live="polite">
        {shown
          ? shown.label
          : rays.left_out > 0
            ? trans.__(
                '%1 more runs match and are not drawn: filter further.',
                rays.left_out
              )
            : trans.__('Point at a line to see which run it is.')}
      </p>
    </div>
  );
}

/** A line through the known values; an unknown one interrupts it. */
export function pathOf(ray: RunTableRay, x: (at: number) => number): string {
  let isOpen = false;
  return ray.at
    .map((place, index) => {
      if (place === null) {
        isOpen = false;
        return '';
      }
      const y = BOTTOM - place * (BOTTOM - TOP);
      const command = isOpen ? 'L' : 'M';
      isOpen = true;
      return `${command}${x(index).toFixed(1)},${y.toFixed(1)}`;
    })
    .join('');
}

function Axis(props: {
  axis: RunTableAxis;
  head: string;
  x: number;
}): JSX.Element {
  const { axis, head, x } = props;
  const [low, high] = axis.ends;
  return (
    <g className="llmops-runtable-axis">
      <line x1={x} x2={x} y1={TOP} y2={BOTTOM} />
      <text x={x} y={14} className="llmops-runtable-axis-name">
        {short(head)}
        <title>{axis.name}</title>
      </text>
      <text x={x} y={TOP - 5}>
        {short(high)}
      </text>
      <text x={x} y={BOTTOM + 14}>
        {short(low)}
      </text>
    </g>
  );
}

function short(text: string): string {
  return text.length <= 20 ? text : `${text.slice(0, 9)}…${text.slice(-9)}`;
}

function useWidth(): [number, React.RefObject<HTMLDivElement>] {
  const element = React.useRef<HTMLDivElement>(null);
  const [width, setWidth] = React.useState(900);
  React.useEffect(() => {
    const shown = element.current;
    if (!shown) {
      return;
    }
    const observer = new ResizeObserver(() => setWidth(shown.clientWidth));
    observer.observe(shown);
    return () => observer.disconnect();
  }, []);
  return [width, element];
}
