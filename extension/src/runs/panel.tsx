import { UseSignal } from '@jupyterlab/apputils';
import { checkIcon, tableRowsIcon } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { CommandIDs } from '../commands';
import { compareIcon, runsIcon, starIcon } from '../icons';
import { IRunsModel } from '../tokens';
import { trans } from '../trans';
import { moveByArrows, useNow, useOneTabStop } from '../ui/hooks';
import { openAt, rowMenu } from '../ui/menu';
import { Busy, EmptyState, IconButton, TroubleBox } from '../ui/parts';
import { SidePanel } from '../ui/widgets';
import { RunRow } from '../wire';
import { grouped, matches } from './model';
import { IRowProps, Row, when } from './row';

/**
 * The runs of the store in the side bar.
 */
export class RunsPanel extends SidePanel {
  constructor(
    private model: IRunsModel,
    private commands: CommandRegistry
  ) {
    super('llmops-runs', runsIcon, trans.__('Runs'));
  }

  protected override render(): JSX.Element {
    return (
      <UseSignal signal={this.model.changed}>
        {() => <Runs model={this.model} commands={this.commands} />}
      </UseSignal>
    );
  }
}

interface IProps {
  model: IRunsModel;
  commands: CommandRegistry;
}

function Runs(props: IProps): JSX.Element {
  const { model } = props;
  const [filter, setFilter] = React.useState('');
  const [onlyStarred, setOnlyStarred] = React.useState(false);
  const [isHiddenShown, setHiddenShown] = React.useState(false);
  const listed = model.runs.filter(run => isHiddenShown || !run.hidden);
  const shown = listed.filter(
    run => matches(run, filter) && (run.starred || !onlyStarred)
  );
  const hasHidden = model.runs.some(run => run.hidden);
  return (
    <>
      <div className="llmops-runs-head">
        <h2>{trans.__('Runs')}</h2>
        <span className="llmops-runs-compare">
          <CompareButton {...props} />
          <IconButton
            icon={tableRowsIcon}
            label={trans.__('All runs as a table')}
            onClick={() =>
              void props.commands.execute(CommandIDs.showRunTable, {})
            }
          />
        </span>
      </div>
      <div className="llmops-runs-filter">
        <input
          className="jp-mod-styled"
          type="search"
          placeholder={trans.__('Filter runs')}
          title={trans.__('By name, cluster, state or id')}
          aria-label={trans.__('Filter runs')}
          value={filter}
          onChange={event => setFilter(event.target.value)}
        />
        <IconButton
          icon={starIcon}
          label={trans.__('Only starred runs')}
          pressed={onlyStarred}
          onClick={() => setOnlyStarred(!onlyStarred)}
        />
        {hasHidden && (
          <IconButton
            icon={checkIcon}
            label={trans.__('Show runs of llmops bench and doctor')}
            pressed={isHiddenShown}
            onClick={() => setHiddenShown(!isHiddenShown)}
          />
        )}
      </div>
      {model.trouble && (
        <TroubleBox kind="warn" trouble={model.trouble}>
          {model.isKnown && (
            <div>{trans.__('The data shown may be out of date.')}</div>
          )}
        </TroubleBox>
      )}
      <List {...props} listed={listed} shown={shown} />
    </>
  );
}

function CompareButton({ model, commands }: IProps): JSX.Element {
  const runIds = [...model.selected];
  const label =
    runIds.length < 2
      ? trans.__('Compare: select two or more runs first')
      : trans.__('Compare %1 runs', runIds.length);
  return (
    <span className="llmops-runs-compare">
      {runIds.length > 0 && (
        <button
          type="button"
          className="llmops-runs-link"
          title={trans.__('Clear the selection of %1 runs', runIds.length)}
          onClick={() => model.clearSelection()}
        >
          {trans.__('Clear %1', runIds.length)}
        </button>
      )}
      <IconButton
        icon={compareIcon}
        label={label}
        disabled={runIds.length < 2}
        onClick={() =>
          void commands.execute(CommandIDs.compareRuns, { runIds })
        }
      />
    </span>
  );
}

function List(
  props: IProps & { listed: RunRow[]; shown: RunRow[] }
): JSX.Element {
  const { model, listed, shown } = props;
  const nowS = useNow();
  const actions = useRowActions(props);
  const { ref, onFocus } = useOneTabStop('.llmops-runs-row');
  if (!model.isKnown) {
    return <Busy text={trans.__('Reading the runs…')} />;
  }
  if (listed.length === 0) {
    return (
      <EmptyState title={trans.__('No runs yet')}>
        {trans.__(
          'Open a *.train.yaml file and press Submit, or run cluster.submit("lora.train.yaml") in a notebook.'
        )}
      </EmptyState>
    );
  }
  if (shown.length === 0) {
    return (
      <EmptyState title={trans.__('No run matches')}>
        {trans.__('The filter hides %1 runs.', listed.length)}
      </EmptyState>
    );
  }
  return (
    <div
      className="llmops-runs-groups"
      ref={ref as React.RefObject<HTMLDivElement>}
      onFocus={onFocus}
      onKeyDown={event => onKey(event, model)}
    >
      {grouped(shown).map(({ cluster, runs }) => (
        <details key={cluster} open>
          <summary>
            {cluster} <span>{runs.length}</span>
          </summary>
          <ul aria-label={trans.__('Runs of cluster %1', cluster)}>
            {runs.map(run => (
              <Row
                key={run.run_id}
                run={run}
                when={when(run, nowS)}
                isSelected={model.selected.has(run.run_id)}
                {...actions}
              />
            ))}
          </ul>
        </details>
      ))}
    </div>
  );
}

/** Arrow keys move, the space bar selects for a comparison; Enter opens, as a click does. */
function onKey(
  event: React.KeyboardEvent<HTMLElement>,
  model: IRunsModel
): void {
  const target = event.target as HTMLElement;
  const runId = target.closest<HTMLElement>('.llmops-runs-row')?.dataset.runId;
  if (event.key === ' ' && runId && target.matches('.llmops-runs-open')) {
    event.preventDefault();
    model.select(runId, !model.selected.has(runId));
    return;
  }
  moveByArrows(event, '.llmops-runs-open');
}

/** What a row calls; the same functions each time, so that rows can be compared. */
function useRowActions({
  model,
  commands
}: IProps): Pick<IRowProps, 'select' | 'execute' | 'menu'> {
  return React.useMemo(
    () => ({
      select: (runId, isSelected) => model.select(runId, isSelected),
      execute: (command, runId) => void commands.execute(command, { runId }),
      menu: (runId, event) => openAt(rowMenu(commands, MENU, { runId }), event)
    }),
    [model, commands]
  );
}

const MENU = [
  CommandIDs.openRun,
  CommandIDs.stopRun,
  CommandIDs.moveRun,
  CommandIDs.retryRun,
  CommandIDs.resubmitRun,
  '',
  CommandIDs.starRun,
  CommandIDs.renameRun,
  CommandIDs.copyRunId,
  CommandIDs.insertRunCode,
  CommandIDs.openRunFolder,
  '',
  CommandIDs.deleteRun
];
