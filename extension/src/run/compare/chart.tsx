import * as React from 'react';

import { axis, shortNumber } from '../../generated/panel';
import { IPlot, PlotData, UPlot } from '../../panelModule';
import { Json } from '../../tokens';
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
}

/**
 * One curve a run, over each other.
 */
export function Chart(props: IProps): JSX.Element {
  const host = React.useRef<HTMLDivElement>(null);
  const plot = React.useRef<IPlot | null>(null);
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
    const made = new UPlot(optionsOf(box, props), props.data, box);
    plot.current = made;
    const resized = new ResizeObserver(() => {
      if (box.clientWidth > 0) {
        made.setSize({ width: box.clientWidth, height: HEIGHT_PX });
      }
    });
    resized.observe(box);
    return () => {
      plot.current = null;
      resized.disconnect();
      made.destroy();
    };
  }, [props.names.join(' '), props.label, theme]);

  React.useEffect(() => plot.current?.setData(props.data), [props.data]);

  return (
    <figure className="llmops-compare-chart">
      <figcaption>{capital(props.label)}</figcaption>
      <div ref={host} role="img" aria-label={props.label} />
    </figure>
  );
}

function optionsOf(host: HTMLElement, props: IProps): Json {
  // The value under the cursor; without a cursor the last one.
  const value = (
    plot: { data: PlotData },
    number: number | null,
    series: number,
    index: number | null
  ) => {
    const known = index === null ? lastOf(plot.data[series]) : number;
    return known === null ? '–' : shortNumber(known) + props.unit;
  };
  const makeAxis = axis as (host: HTMLElement, more: Json) => Json;
  return {
    width: Math.max(host.clientWidth, 200),
    height: HEIGHT_PX,
    cursor: { sync: { key: props.syncKey }, drag: { x: true, y: false } },
    scales: {
      x: { time: false },
      y: props.fromZero
        ? {
            range: (_: unknown, __: number, high: number) => [
              0,
              high * 1.1 || 1
            ]
          }
        : {}
    },
    axes: [
      makeAxis(host, { size: 30, incrs: WHOLE }),
      makeAxis(host, {
        size: 58,
        values: (_: unknown, ticks: number[]) =>
          ticks.map(tick => shortNumber(tick) + props.unit)
      })
    ],
    series: [
      {
        label: props.xLabel,
        value: (plot: { data: PlotData }, step: number | null) =>
          String(step ?? lastOf(plot.data[0]) ?? '–')
      },
      ...props.names.map((label, index) => ({
        label,
        stroke: COLORS[index % COLORS.length],
        width: 1.5,
        spanGaps: true,
        points: { show: false },
        value
      }))
    ]
  };
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
