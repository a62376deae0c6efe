import * as React from 'react';

import { Range, X_AXES, chartChoice } from '../../panel/numbers';
import { Chart, IPlan, PlotData, Zoom } from '../../panel/plot';
import { capital } from '../../panel/tabs';
import { IChartSettings } from '../../tokens';
import { trans } from '../../trans';
import { useChanges } from '../../ui/hooks';
import { CurveChoice } from './curves';

const HEIGHT_PX = 220;

/**
 * A chart of the run's panel with the curves of several runs.
 */
export function CurveChart(props: {
  title: string;
  plan: IPlan;
  zoom: Zoom;
  /** Each chart by itself, so that all follow one zoom. */
  charts: Set<Chart>;
}): JSX.Element {
  const { title, plan, zoom, charts } = props;
  const host = React.useRef<HTMLDivElement>(null);
  const chart = React.useRef<Chart | null>(null);
  React.useEffect(() => {
    const made = new Chart(zoom, HEIGHT_PX);
    host.current?.append(made.element);
    chart.current = made;
    charts.add(made);
    return () => {
      charts.delete(made);
      made.dispose();
      made.element.remove();
    };
  }, [zoom, charts]);
  React.useEffect(() => chart.current?.show(plan), [plan]);
  return (
    <figure className="llmops-compare-chart">
      <figcaption>{capital(title)}</figcaption>
      <div ref={host} />
    </figure>
  );
}

/**
 * A user's choices for charts, and a function that changes and keeps them.
 */
export function useChartChoice(
  settings: IChartSettings
): [CurveChoice, (part: Partial<CurveChoice>) => void] {
  const [, again] = React.useReducer((count: number) => count + 1, 0);
  useChanges(settings);
  const choose = (part: Partial<CurveChoice>) => {
    // A run's panel may have changed others of them since this was drawn.
    settings.keep({ ...chartChoice(settings.read()), ...part });
    again();
  };
  return [chartChoice(settings.read()), choose];
}

/**
 * The charts of a page and the zoom that they share. Another theme draws them again: a legend
 * keeps the colours it was made with.
 */
export function useCharts(syncKey: string): {
  zoom: Zoom;
  charts: Set<Chart>;
  theme: number;
} {
  const [charts] = React.useState(() => new Set<Chart>());
  const [zoom] = React.useState(
    () => new Zoom(() => charts.forEach(chart => chart.rescale()), syncKey)
  );
  const [theme, newTheme] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => {
    const observer = new MutationObserver(() => {
      charts.forEach(chart => chart.clear());
      newTheme();
    });
    const attributeFilter = ['data-jp-theme-name'];
    observer.observe(document.body, { attributes: true, attributeFilter });
    return () => observer.disconnect();
  }, [charts]);
  return { zoom, charts, theme };
}

/** The whole range of an x axis, over all curves of a page. */
export function boundsOf(xs: readonly PlotData[number][]): Range {
  const used = xs.filter(x => x.length > 0);
  if (used.length === 0) {
    return [0, 1];
  }
  const low = Math.min(...used.map(x => x[0] ?? 0));
  const high = Math.max(...used.map(x => x[x.length - 1] ?? 0));
  return low === high ? [low - 1, high + 1] : [low, high];
}

/** What stands on the x axis, in the menu and in the legends. */
export function axisNames(): Record<string, string> {
  return {
    step: trans.__('step'),
    tokens: trans.__('tokens'),
    time: trans.__('hours since the first step'),
    epoch: trans.__('epoch')
  };
}

/**
 * What all charts of the page do: the same choices as in a run's panel, kept with them.
 */
export function ChartTools(props: {
  choice: CurveChoice;
  known: ReadonlySet<string>;
  choose: (part: Partial<CurveChoice>) => void;
  showAll: () => void;
}): JSX.Element {
  const { choice, known, choose } = props;
  const names = axisNames();
  return (
    <div
      className="llmops-compare-tools"
      role="group"
      aria-label={trans.__('Chart settings')}
    >
      <label>
        {trans.__('x axis')}{' '}
        <select
          value={choice.x}
          onChange={event => choose({ x: event.target.value })}
        >
          {X_AXES.map(({ key }) => (
            <option key={key} value={key} disabled={!known.has(key)}>
              {known.has(key)
                ? names[key]
                : trans.__('%1 (not known)', names[key])}
            </option>
          ))}
        </select>
      </label>
      <label
        title={trans.__(
          'Exponential moving average, as in TensorBoard and W&B'
        )}
      >
        {trans.__('smoothing')}{' '}
        <input
          type="range"
          min={0}
          max={0.99}
          step={0.01}
          value={choice.smoothing}
          onChange={event => choose({ smoothing: Number(event.target.value) })}
        />{' '}
        {choice.smoothing ? choice.smoothing.toFixed(2) : trans.__('off')}
      </label>
      <label>
        <input
          type="checkbox"
          checked={choice.log}
          onChange={event => choose({ log: event.target.checked })}
        />{' '}
        {trans.__('log scale')}
      </label>
      <button type="button" onClick={props.showAll}>
        {trans.__('Show all')}
      </button>
    </div>
  );
}
