import * as React from 'react';
import uPlot from 'uplot';

import { Range, chartChoice } from '../../panel/numbers';
import { PlotData, Zoom } from '../../panel/plot';
import { IChartSettings } from '../../tokens';
import { useChanges } from '../../ui/hooks';
import { CurveChoice } from './curves';

/**
 * A user's choices for charts, and a function that changes and keeps them.
 */
export function useChartChoice(
  charts: IChartSettings
): [CurveChoice, (part: Partial<CurveChoice>) => void] {
  const [, again] = React.useReducer((count: number) => count + 1, 0);
  useChanges(charts);
  const choose = (part: Partial<CurveChoice>) => {
    // A run's panel may have changed others of them since this was drawn.
    charts.keep({ ...chartChoice(charts.read()), ...part });
    again();
  };
  return [chartChoice(charts.read()), choose];
}

/**
 * The zoom that all plots of the page share, over the x values of all of them.
 */
export function useZoom(xs: readonly PlotData[number][]): {
  zoom: Zoom;
  plotted: Set<uPlot>;
} {
  const [plotted] = React.useState(() => new Set<uPlot>());
  const [zoom] = React.useState<Zoom>(
    () => new Zoom(() => rescale(plotted, zoom))
  );
  zoom.bounds = boundsOf(xs);
  return { zoom, plotted };
}

function rescale(plotted: ReadonlySet<uPlot>, zoom: Zoom): void {
  const [min, max] = zoom.range;
  plotted.forEach(plot => plot.setScale('x', { min, max }));
}

function boundsOf(xs: readonly PlotData[number][]): Range {
  const used = xs.filter(x => x.length > 0);
  const low = Math.min(...used.map(x => x[0] ?? 0));
  const high = Math.max(...used.map(x => x[x.length - 1] ?? 0));
  if (used.length === 0) {
    return [0, 1];
  }
  return low === high ? [low - 1, high + 1] : [low, high];
}
