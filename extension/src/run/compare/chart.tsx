import * as React from 'react';
import uPlot from 'uplot';

import {
  IMark,
  KEYS,
  PlotData,
  Zoom,
  axis,
  drawMarks,
  followMouse,
  legendValue,
  logRange,
  pressed,
  shortNumber,
  ticksOf,
  zoomIntoSelection
} from '../../panel/plot';
import { valueAt } from '../../panel/numbers';
import { capital } from '../../panel/tabs';
import { COLORS } from './curves';

/** Distances of ticks: there is no half step or row. */
const WHOLE = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7].flatMap(power =>
  [1, 2, 5].map(digit => digit * power)
);
const HEIGHT_PX = 220;

interface IProps {
  label: string;
  xLabel: string;
  names: readonly string[];
  data: PlotData;
  unit: string;
  syncKey: string;
  fromZero: boolean;
  log: boolean;
  whole: boolean;
  /** Restarts, and where a curve stops being a number. */
  marks: readonly IMark[];
  /** Few values far from each other, as of evaluations. */
  dots?: boolean;
  zoom: Zoom;
  /** Each plot by itself, so that all follow one zoom. */
  plotted: Set<uPlot>;
}

/**
 * The curves of several runs over each other.
 */
export function Chart(props: IProps): JSX.Element {
  const host = React.useRef<HTMLDivElement>(null);
  const plot = React.useRef<uPlot | null>(null);
  const marks = React.useRef(props.marks);
  marks.current = props.marks;
  const [theme, newTheme] = React.useReducer((count: number) => count + 1, 0);

  React.useEffect(() => {
    const seen = new MutationObserver(() => newTheme());
    seen.observe(document.body, {
      attributes: true,
      attributeFilter: ['data-jp-theme-name']
    });
    return () => seen.disconnect();
  }, []);

  React.useEffect(() => {
    const box = host.current;
    if (!box) {
      return;
    }
    const made = new uPlot(optionsOf(box, props, marks), props.data, box);
    plot.current = made;
    props.plotted.add(made);
    followMouse(made, props.zoom);
    const resized = new ResizeObserver(() => {
      if (box.clientWidth > 0) {
        made.setSize({ width: box.clientWidth, height: HEIGHT_PX });
      }
    });
    resized.observe(box);
    return () => {
      plot.current = null;
      props.plotted.delete(made);
      resized.disconnect();
      made.destroy();
    };
  }, [
    props.names.join(' '),
    props.data.length,
    props.label,
    props.log,
    props.whole,
    theme
  ]);

  const marked = props.marks.map(({ x }) => x).join();
  React.useEffect(
    () => plot.current?.setData(props.data),
    [props.data, marked]
  );

  return (
    <figure className="llmops-compare-chart">
      <figcaption>{capital(props.label)}</figcaption>
      <div
        ref={host}
        role="group"
        tabIndex={0}
        aria-label={props.label}
        title={KEYS}
        data-lm-suppress-shortcuts="true"
        onKeyDown={event => {
          if (
            plot.current &&
            pressed(event.nativeEvent, plot.current, props.zoom)
          ) {
            event.preventDefault();
            event.stopPropagation();
          }
        }}
      />
    </figure>
  );
}

function optionsOf(
  host: HTMLElement,
  props: IProps,
  marks: { current: readonly IMark[] }
): uPlot.Options {
  return {
    width: Math.max(host.clientWidth, 200),
    height: HEIGHT_PX,
    cursor: {
      sync: { key: props.syncKey },
      drag: { x: true, y: false, setScale: false }
    },
    hooks: {
      setSelect: [plot => zoomIntoSelection(plot, props.zoom)],
      draw: [plot => drawMarks(plot, marks.current)]
    },
    scales: {
      x: { time: false, range: () => props.zoom.range },
      y: props.log
        ? { distr: 3, log: 10, range: logRange }
        : props.fromZero
          ? {
              range: (_, __, high) => [0, high * 1.1 || 1]
            }
          : {}
    },
    axes: [
      axis(host, props.whole ? { size: 30, incrs: WHOLE } : { size: 30 }),
      axis(host, {
        size: 58,
        values: ticksOf(tick => shortNumber(tick) + props.unit)
      })
    ],
    series: [
      {
        label: props.xLabel,
        value: (plot, step: number | null) =>
          shownX(step ?? valueAt(plot.data[0], null), props.whole)
      },
      ...seriesNames(props).map(({ label, index, faint }) => ({
        label,
        stroke: COLORS[index % COLORS.length],
        alpha: faint ? 0.3 : 1,
        width: 1.5,
        spanGaps: true,
        points: props.dots
          ? { show: true, size: 6 }
          : { show: isSparse, size: 5 },
        value: legendValue(props.unit)
      }))
    ]
  };
}

/** True if so few points are known that no line would be seen of them. */
export function isSparse(plot: Pick<uPlot, 'data'>, series: number): boolean {
  const values = plot.data[series];
  let known = 0;
  for (let index = 0; index < values.length && known <= 2; index++) {
    known += values[index] === null ? 0 : 1;
  }
  return known <= 2;
}

/** Name the lines; the raw line stays visible behind a smoothed one. */
function seriesNames({ names, data }: IProps) {
  const isSmoothed = data.length > names.length + 1;
  const raw = names.map((label, index) => ({
    label,
    index,
    faint: isSmoothed
  }));
  const curves = names.map((label, index) => ({
    label: `${label}, smoothed`,
    index,
    faint: false
  }));
  return isSmoothed ? [...raw, ...curves] : raw;
}

function shownX(value: number | null, whole: boolean): string {
  return value !== null && whole ? String(value) : shortNumber(value);
}
