import * as React from 'react';

import { Shown, chartSettings } from '../../generated/panel';
import { IPlot, PlotData } from '../../panelModule';
import { IChartSettings, Json } from '../../tokens';
import { IShown } from './chart';
import { IChartChoice } from './curves';

type IZoom = IShown & { bounds: [number, number] };

/**
 * A user's choices for charts, and a function that changes and keeps them.
 */
export function useChartChoice(
  charts: IChartSettings
): [IChartChoice, (part: Partial<IChartChoice>) => void] {
  const [kept, keep] = React.useState<Json>(charts.read());
  const choose = (part: Partial<IChartChoice>) => {
    const changed = { ...chartSettings(kept), ...part } as Json;
    keep(changed);
    charts.keep(changed);
  };
  return [chartSettings(kept) as IChartChoice, choose];
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
