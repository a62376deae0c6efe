import { refreshIcon, ToolbarButton } from '@jupyterlab/ui-components';
import * as React from 'react';

import { compareIcon } from '../../icons';
import { IChartSettings } from '../../tokens';
import { trans } from '../../trans';
import { useChanges } from '../../ui/hooks';
import { Loading, Name, StateBadge } from '../../ui/parts';
import { MainView } from '../../ui/widgets';
import { Comparison, RunRow } from '../../wire';
import { Difference } from '../difference';
import { COLORS } from './curves';
import { Curves, drawnGroups } from './curvesView';
import { Matrix } from './matrix';
import { CompareModel } from './model';
import { shownNames } from './names';
import { Figures, Group, SamplesSection } from './tables';
import { ScoresSection } from './scores';

interface IProps {
  model: CompareModel;
  charts: IChartSettings;
  open: (runId: string) => void;
}

/**
 * Of two runs what differs, then what came of it. Of more one matrix says both and curves come
 * next, as they would else be far below; code is behind them. Speed and start-up are folded.
 */
function CompareView(props: IProps): JSX.Element {
  const { model } = props;
  useChanges(model);
  const { comparison, trouble } = model;
  // The speed of scorings is what their curves show.
  const hasResults = drawnGroups(model).has('result');
  const curves = <Curves {...props} group={hasResults ? 'result' : 'speed'} />;
  return (
    <div className="llmops-compare">
      <Loading
        isKnown={comparison !== null}
        trouble={trouble}
        text={trans.__('Comparing…')}
      />
      {model.runIds.length > 2 ? (
        <>
          {comparison && (
            <Matrix
              {...props}
              comparison={comparison}
              base={model.base}
              setBase={runId => void model.setBase(runId)}
            />
          )}
          {curves}
          {comparison && <SamplesSection {...{ comparison }} />}
          {comparison && <Code comparison={comparison} />}
        </>
      ) : (
        <>
          {comparison && <Heads {...props} rows={comparison.runs} />}
          {comparison?.differences.map(difference => (
            <Difference
              key={`${difference.before} ${difference.after}`}
              difference={difference}
              runs={comparison.runs}
            />
          ))}
          {model.scores && <ScoresSection model={model.scores} />}
          {comparison && <Figures {...{ comparison }} group="result" />}
          {comparison && <SamplesSection {...{ comparison }} />}
          {curves}
        </>
      )}
      {comparison && (
        <>
          <Folded title={trans.__('Speed, memory and cost')}>
            <Figures {...{ comparison }} group="speed" />
            {hasResults && <Curves {...props} group="speed" />}
          </Folded>
          {has(comparison, 'start') && (
            <Folded title={trans.__('Start-up')}>
              <Figures {...{ comparison }} group="start" />
            </Folded>
          )}
        </>
      )}
    </div>
  );
}

/** Code and environment of each run against the baseline's; its config is in the matrix. */
function Code(props: { comparison: Comparison }): JSX.Element | null {
  const { comparison } = props;
  const others = comparison.differences
    .map(difference => ({ ...difference, config: [] }))
    .filter(({ code, environment }) => code.length + environment.length > 0);
  if (others.length === 0) {
    return null;
  }
  return (
    <Folded
      title={trans._n(
        'Code and environment: %1 run differs from the baseline',
        'Code and environment: %1 runs differ from the baseline',
        others.length
      )}
    >
      {others.map(difference => (
        <Difference
          key={`${difference.before} ${difference.after}`}
          difference={difference}
          runs={comparison.runs}
        />
      ))}
    </Folded>
  );
}

function has(comparison: Comparison, group: Group): boolean {
  return comparison.figures.some(figure => figure.group === group);
}

/** What is inside is made when it is first opened: a hidden chart has no width. */
function Folded(props: {
  title: string;
  children: React.ReactNode;
}): JSX.Element {
  const [isOpen, setOpen] = React.useState(false);
  return (
    <details
      className="llmops-compare-folded"
      onToggle={event => setOpen(event.currentTarget.open)}
    >
      <summary>{props.title}</summary>
      {isOpen && props.children}
    </details>
  );
}

function Heads(props: IProps & { rows: readonly RunRow[] }): JSX.Element {
  const names = shownNames(props.rows);
  return (
    <ul className="llmops-compare-heads" aria-label={trans.__('Runs')}>
      {props.rows.map((row, index) => (
        <li key={row.run_id}>
          <span
            className="llmops-compare-color"
            style={{ background: COLORS[index % COLORS.length] }}
          />
          <button
            type="button"
            title={trans.__('Open run %1', row.run_id)}
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

/** One tab for the same runs, in whatever order they were chosen. */
export function compareId(runIds: readonly string[]): string {
  return `llmops-compare-${[...runIds].sort().join('-')}`;
}

/**
 * Several runs side by side, in the main area.
 */
export class CompareWidget extends MainView<CompareModel> {
  constructor(
    model: CompareModel,
    charts: IChartSettings,
    open: (runId: string) => void
  ) {
    super(model, <CompareView {...{ model, charts, open }} />, {
      id: compareId(model.runIds),
      icon: compareIcon,
      label: trans.__('Compare %1 Runs', model.runIds.length),
      caption: model.runIds.join('\n')
    });
    this.addClass('llmops-compare-widget');
    this.toolbar.addItem(
      'refresh',
      new ToolbarButton({
        icon: refreshIcon,
        tooltip: trans.__('Reload figures and differences'),
        onClick: () => void model.refresh()
      })
    );
  }

  get runIds(): readonly string[] {
    return this.model.runIds;
  }
}
