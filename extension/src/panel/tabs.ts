import uPlot from 'uplot';

import { RunColumn } from '../wire';
import {
  AXIS_COLUMNS,
  IChartChoice,
  IXAxis,
  Numbers,
  Point,
  atSteps,
  positive,
  smoothed
} from './numbers';
import { ILine, IPlan, PlotData } from './plot';
import { RunData } from './runData';
import { IPanelState } from './state';

interface IDrawnUnit {
  scale: number;
  unit: string;
  /** The title of the tab with all columns of this unit. */
  title?: string;
}

/** Scale and suffix of units; a unit that is not here is drawn as it is. */
export const UNITS: Partial<Record<RunColumn['unit'], IDrawnUnit>> = {
  fraction: { scale: 100, unit: ' %' },
  bytes: { scale: 1 / 2 ** 30, unit: ' GiB', title: 'Memory' },
  seconds: { scale: 1, unit: ' s' }
};

/** The content of a chart: columns, and points between them. */
export interface ITab {
  key: string;
  title: string;
  scale: number;
  unit: string;
  series: RunColumn[];
  points?: readonly Point[];
  pointsLabel?: string;
  fromZero?: boolean;
}

/** Shared by all charts of a drawing. */
export interface IFrame {
  x: IXAxis;
  steps: Float64Array;
  choice: IChartChoice;
}

export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Make a tab for each unit: its columns share an axis. Those of no known unit have one each. */
export function tabsOf(
  columns: readonly RunColumn[],
  curve: string | undefined
): ITab[] {
  const tabs = new Map<string, ITab>();
  for (const column of columns.slice(1)) {
    if (column.name === curve || AXIS_COLUMNS.has(column.name)) {
      continue;
    }
    const drawn = UNITS[column.unit];
    const key = drawn ? column.unit : column.name;
    const tab = tabs.get(key) ?? {
      key,
      title: drawn?.title ?? capital(column.label),
      scale: drawn?.scale ?? 1,
      unit: drawn?.unit ?? '',
      series: []
    };
    tab.series.push(column);
    tabs.set(key, tab);
  }
  return [...tabs.values()];
}

/** A chart for each metric of the evaluations but the loss, which is drawn with the training's. */
export function evalTabs({ eval_curves: curves = [] }: IPanelState): ITab[] {
  return curves.map(({ name, label, points }) => ({
    key: `eval:${name}`,
    title: `Eval ${label}`,
    scale: 1,
    unit: '',
    series: [],
    points,
    pointsLabel: label
  }));
}

export function curveTab(
  state: IPanelState,
  data: RunData,
  label: string
): ITab {
  const series = data.columns.filter(({ name }) => name === state.curve);
  return {
    key: 'curve',
    title: capital(label),
    scale: 1,
    unit: '',
    series,
    fromZero: false,
    ...(state.evals
      ? { points: state.evals, pointsLabel: `eval ${label}` }
      : {})
  };
}

type Drawn = Pick<IPlan, 'data' | 'lines' | 'note'>;

/** The data and the lines of a tab's plot, as the user has chosen, and a note. */
export function drawnOf(tab: ITab, data: RunData, frame: IFrame): Drawn {
  const { x, steps, choice } = frame;
  const columns: Numbers[] = [x.values];
  const lines: ILine[] = [];
  let numLeftOut = 0;
  const shown = (values: Numbers): Numbers => {
    if (!choice.log) {
      return values;
    }
    const kept = positive(values);
    numLeftOut += kept.numLeftOut;
    return kept.values;
  };
  const used = tab.series.filter(({ name }) => data.has(name));
  used.forEach(({ name, label }, color) => {
    const values = data.column(name, tab.scale);
    const faint = choice.smoothing > 0;
    columns.push(shown(values));
    lines.push({ label, color, faint });
    if (faint) {
      // Smoothed as it is, then cut: zero and less count in the mean.
      const curve = smoothed(values, choice.smoothing);
      columns.push(choice.log ? positive(curve).values : curve);
      lines.push({ label: `${label}, smoothed`, color });
    }
  });
  let joined = columns as unknown as PlotData;
  if (tab.points) {
    joined = withPoints(joined, atSteps(tab.points, steps, x), shown);
    const color = used.length ? 1 : 0;
    lines.push({ label: tab.pointsLabel ?? '', color, dots: true });
  }
  const note = numLeftOut
    ? `${numLeftOut.toLocaleString('en')} values of zero or less are not on the log scale.`
    : '';
  return { data: joined, lines, note };
}

/** Add points to rows: aligned columns for uPlot. */
function withPoints(
  data: PlotData,
  points: readonly Point[],
  shown: (values: Numbers) => Numbers
): PlotData {
  if (points.length === 0) {
    const none = new Array<null>(data[0].length).fill(null);
    return [...data, none] as unknown as PlotData;
  }
  const values = shown(points.map(([, value]) => value));
  const more = [points.map(([x]) => x), values] as unknown as PlotData;
  return uPlot.join([data, more]);
}

/** Say why a tab's chart is empty. */
export function noNumbers({ key, series }: ITab): string {
  if (series[0]?.name === 'mfu') {
    return 'MFU is not known: no peak speed for this device.';
  }
  return key === 'bytes'
    ? 'Memory is not known for this run.'
    : 'No numbers yet.';
}
