import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { DASH } from '../../ui/format';
import { Busy, EmptyState, Name, StateBadge, TroubleBox } from '../../ui/parts';
import { useChanges } from '../../ui/hooks';
import { Comparison, RunRow } from '../../wire';
import { Difference } from '../difference';
import { IChartSettings } from '../../tokens';
import { Chart } from './chart';
import {
  COLORS,
  X_KEYS,
  comparedColumns,
  drawnAs,
  overlaid,
  xOf
} from './curves';
import { CompareModel } from './model';
import { short, shownNames } from './names';
import { ScoresSection } from './scores';
import { ChartTools } from './tools';
import { useChartChoice, useZoom } from './zoom';

/** A column narrower than this would break figures in the middle. */
const FIGURE_PX = 130;
const NAME_PX = 140;

interface IProps {
  model: CompareModel;
  trans: TranslationBundle;
  charts: IChartSettings;
  open: (runId: string) => void;
}

/**
 * Curves over each other, figures side by side, and what differs.
 */
export function CompareView(props: IProps): JSX.Element {
  const { model, trans } = props;
  useChanges(model);
  const { comparison, trouble } = model;
  return (
    <div className="llmops-compare">
      {trouble && (
        <TroubleBox kind={comparison ? 'warn' : 'error'} trouble={trouble} />
      )}
      {!comparison && !trouble && <Busy text={trans.__('Comparing…')} />}
      {comparison && <Heads {...props} rows={comparison.runs} />}
      {model.scores && <ScoresSection model={model.scores} trans={trans} />}
      <Curves {...props} />
      {comparison && (
        <div className="llmops-compare-beside">
          <Figures comparison={comparison} trans={trans} />
          <div>
            {comparison.differences.map(difference => (
              <Difference
                key={`${difference.before} ${difference.after}`}
                difference={difference}
                trans={trans}
              />
            ))}
          </div>
        </div>
      )}
    </div>
  );
}

function Heads(props: IProps & { rows: readonly RunRow[] }): JSX.Element {
  const names = shownNames(props.rows);
  return (
    <ul className="llmops-compare-heads" aria-label={props.trans.__('Runs')}>
      {props.rows.map((row, index) => (
        <li key={row.run_id}>
          <span
            className="llmops-compare-color"
            style={{ background: COLORS[index % COLORS.length] }}
          />
          <button
            type="button"
            title={props.trans.__('Open run %1', row.run_id)}
            onClick={() => props.open(row.run_id)}
          >
            <Name {...names[index]} />
          </button>
          <StateBadge state={row.state} />
        </li>
      ))}
    </ul>
  );
}

/** One chart a column that at least one of the runs has. */
export function Curves({ model, trans, charts }: IProps): JSX.Element {
  const [choice, choose] = useChartChoice(charts);
  const rows = model.runs.map(run => run.rows);
  const names = shownNames(
    model.runs.map(({ runId, state }) => ({
      title: state?.row.title ?? '',
      run_id: runId
    }))
  ).map(short);
  const known = new Set<string>(
    X_KEYS.filter(axis => rows.some(run => run.count && xOf(run, axis)))
  );
  const drawn = { ...choice, x: known.has(choice.x) ? choice.x : 'step' };
  const key = model.runs.map(run => `${run.runId}:${run.rows.count}`).join();
  const shown = React.useMemo(
    () =>
      comparedColumns(rows).map(({ name, label, unit }) => {
        const { scale, suffix } = drawnAs(unit);
        const data = overlaid(rows, name, scale, drawn);
        return { name, label, unit, suffix, data };
      }),
    [key, drawn.x, drawn.smoothing, drawn.log]
  );
  const { shown: zoom, plotted } = useZoom(shown.map(({ data }) => data[0]));
  if (shown.length === 0) {
    return (
      <EmptyState title={trans.__('No data yet')}>
        {trans.__('Curves appear when a run reports its first step.')}
      </EmptyState>
    );
  }
  const syncKey = `llmops-${model.runIds.join()}`;
  return (
    <>
      <ChartTools
        choice={drawn}
        known={known}
        choose={part => {
          if (part.x) zoom.zoom(null);
          choose(part);
        }}
        showAll={() => zoom.zoom(null)}
        trans={trans}
      />
      <div className="llmops-compare-charts">
        {shown.map(({ name, label, unit, suffix, data }) => (
          <Chart
            key={name}
            label={label}
            xLabel={
              drawn.x === 'step'
                ? (rows.find(({ columns }) => columns[0])?.columns[0].label ??
                  '')
                : drawn.x
            }
            names={names}
            data={data}
            unit={suffix}
            syncKey={syncKey}
            fromZero={unit !== 'loss'}
            log={drawn.log}
            whole={drawn.x === 'step'}
            shown={zoom}
            plotted={plotted}
          />
        ))}
      </div>
    </>
  );
}

function Figures(props: {
  comparison: Comparison;
  trans: TranslationBundle;
}): JSX.Element {
  const { comparison, trans } = props;
  const names = shownNames(comparison.runs);
  return (
    <div className="llmops-compare-scroll">
      <table
        className="llmops-lab-table llmops-compare-figures"
        style={{ minWidth: NAME_PX + FIGURE_PX * comparison.runs.length }}
      >
        <thead>
          <tr>
            <th scope="col">{trans.__('Figure')}</th>
            {comparison.runs.map((row, index) => (
              <th key={row.run_id} scope="col" title={row.run_id}>
                <span className="llmops-compare-head">
                  <span
                    className="llmops-compare-color"
                    style={{ background: COLORS[index % COLORS.length] }}
                  />
                  <Name {...names[index]} />
                </span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {comparison.figures.map(({ label, texts, ratios }) => (
            <tr key={label}>
              <th scope="row">{label}</th>
              {texts.map((text, index) => (
                <td key={index}>
                  {text}
                  {index > 0 && (
                    <span
                      className="llmops-compare-ratio"
                      title={trans.__('Ratio to the first run')}
                    >
                      {ratioText(ratios[index])}
                    </span>
                  )}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function ratioText(ratio: number | null): string {
  return ratio === null ? DASH : `× ${ratio.toPrecision(3)}`;
}
