import * as React from 'react';

import { Shown, chartSettings } from '../../generated/panel';
import { IPlot, PlotData } from '../../panelModule';
import { IChartSettings, Json } from '../../tokens';
import { useChanges } from '../../ui/hooks';
import { IShown } from './chart';
import { IChartChoice } from './curves';

type IZoom = IShown & { bounds: [number, number] };

/**
 * A user's choices for charts, and a function that changes and keeps them.
 */
export function useChartChoice(
  charts: IChartSettings
): [IChartChoice, (part: Partial<IChartChoice>) => void] {
  const [, again] = React.useReducer((count: number) => count + 1, 0);
  useChanges(charts);
  const choose = (part: Partial<IChartChoice>) => {
    // A run's panel may have changed others of them since this was drawn.
    charts.keep({ ...chartSettings(charts.read()), ...part } as Json);
    again();
  };
  return [chartSettings(charts.read()) as IChartChoice, choose];
}

/**
 * One zoom for all plots of the page, over the x values of all of them.
 */
export function useZoom(xs: readonly PlotData[number][]): {
  shown: IShown;
  plotted: Set<IPlot>;
} {
  const [plotted] = React.useState(() => new Set<IPlot>());
  const [shown] = React.useState(
    () => new Shown(() => rescale(plotted, shown)) as unknown as IZoom
  );
  shown.bounds = boundsOf(xs);
  return { shown, plotted };
}

function rescale(plotted: ReadonlySet<IPlot>, shown: IShown): void {
  const [min, max] = shown.range();
  plotted.forEach(plot => plot.setScale('x', { min, max }));
}

function boundsOf(xs: readonly PlotData[number][]): [number, number] {
  const used = xs.filter(x => x.length > 0);
  const low = Math.min(...used.map(x => x[0] ?? 0));
  const high = Math.max(...used.map(x => x[x.length - 1] ?? 0));
  if (used.length === 0) {
    return [0, 1];
  }
  return low === high ? [low - 1, high + 1] : [low, high];
}
