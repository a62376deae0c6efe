import * as React from 'react';

import {
  KEYS,
  axis,
  drawMarks,
  followMouse,
  logRange,
  pressed,
  shortNumber,
  ticksOf,
  valueAt,
  zoomIntoSelection
} from '../../generated/panel';
import { IPlot, PlotData, UPlot } from '../../panelModule';
import { Json } from '../../tokens';
import { COLORS, IMark } from './curves';

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
  shown: IShown;
  /** Each plot by itself, so that all follow one zoom. */
  plotted: Set<IPlot>;
}

/** The zoom that all charts of the page have in common: `Shown` of the run's panel. */
export interface IShown {
  range(): [number, number];
  zoom(part: [number, number] | null): void;
}

/**
 * One curve a run, over each other.
 */
export function Chart(props: IProps): JSX.Element {
  const host = React.useRef<HTMLDivElement>(null);
  const plot = React.useRef<IPlot | null>(null);
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
    const made = new UPlot(optionsOf(box, props, marks), props.data, box);
    plot.current = made;
    props.plotted.add(made);
    followMouse(made, props.shown);
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
        title={KEYS as string}
        data-lm-suppress-shortcuts="true"
        onKeyDown={event => {
          if (
            plot.current &&
            pressed(event.nativeEvent, plot.current, props.shown)
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
): Json {
  // The value under the cursor; without a cursor the last one.
  const value = (
    plot: { data: PlotData },
    _: number | null,
    series: number,
    index: number | null
  ) => {
    const known = valueAt(plot.data[series], index) as number | null;
    return known === null ? '–' : shortNumber(known) + props.unit;
  };
  const makeAxis = axis as (host: HTMLElement, more: Json) => Json;
  return {
    width: Math.max(host.clientWidth, 200),
    height: HEIGHT_PX,
    cursor: {
      sync: { key: props.syncKey },
      drag: { x: true, y: false, setScale: false }
    },
    hooks: {
      setSelect: [(plot: IPlot) => zoomIntoSelection(plot, props.shown)],
      draw: [(plot: IPlot) => drawMarks(plot, marks.current)]
    },
    scales: {
      x: { time: false, range: () => props.shown.range() },
      y: props.log
        ? { distr: 3, log: 10, range: logRange }
        : props.fromZero
          ? {
              range: (_: unknown, __: number, high: number) => [
                0,
                high * 1.1 || 1
              ]
            }
          : {}
    },
    axes: [
      makeAxis(host, props.whole ? { size: 30, incrs: WHOLE } : { size: 30 }),
      makeAxis(host, {
        size: 58,
        values: ticksOf((tick: number) => shortNumber(tick) + props.unit)
      })
    ],
    series: [
      {
        label: props.xLabel,
        value: (plot: { data: PlotData }, step: number | null) =>
          shownX(step ?? lastOf(plot.data[0]), props.whole)
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
        value
      }))
    ]
  };
}

/** Whether so few points are known that no line would be seen of them. */
export function isSparse(plot: { data: PlotData }, series: number): boolean {
  const values = plot.data[series];
  let known = 0;
  for (let index = 0; index < values.length && known <= 2; index++) {
    known += values[index] === null ? 0 : 1;
  }
  return known <= 2;
}

/** Where it is smoothed, the raw line stays visible behind its curve. */
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

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function lastOf(column: PlotData[number]): number | null {
  for (let index = column.length - 1; index >= 0; index--) {
    const value = column[index];
    if (value !== null) {
      return value;
    }
  }
  return null;
}
