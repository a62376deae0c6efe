import { deleteIcon, refreshIcon, stopIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { CommandIDs } from '../commands';
import { starIcon, starredIcon } from '../icons';
import { trans } from '../trans';
import * as fmt from '../ui/format';
import { Ellipsed, IconButton, Name, Sparkline, StateBadge } from '../ui/parts';
import { RunRow } from '../wire';
import { hasEnded, keptFrom, knownFigures, nameOf, nameWithId } from './model';

/** `-2a4c`: ids of one config differ in their last part. */
const TAIL = 5;

function tailOf(text: string): number {
  return text.length > 2 * TAIL ? text.length - TAIL : text.length;
}

export interface IRowProps {
  run: RunRow;
  /** Its age, or the time that is left. */
  when: string;
  isSelected: boolean;
  execute: (command: string, runId: string) => void;
  select: (runId: string, isSelected: boolean) => void;
  menu: (runId: string, event: React.MouseEvent) => void;
}

/**
 * One run of the side bar: a click opens it, its check box selects it for a comparison.
 *
 * Drawn again only if one of its properties is another one: a list has hundreds of rows, and
 * each second some of them change.
 */
export const Row = React.memo(function Row(props: IRowProps): JSX.Element {
  const { run, execute } = props;
  const shown = nameOf(run);
  const from = shown === run.run_id ? tailOf(shown) : keptFrom(shown);
  const open = (event: React.MouseEvent) => {
    if (event.ctrlKey || event.metaKey) {
      props.select(run.run_id, !props.isSelected);
    } else {
      execute(CommandIDs.openRun, run.run_id);
    }
  };
  return (
    <li
      className="llmops-runs-row"
      data-run-id={run.run_id}
      data-state={run.state}
      onContextMenu={event => props.menu(run.run_id, event)}
    >
      <input
        type="checkbox"
        checked={props.isSelected}
        aria-label={trans.__('Select %1 for comparing', shown)}
        title={trans.__('Select for comparing')}
        onChange={event => props.select(run.run_id, event.target.checked)}
      />
      <button
        type="button"
        className="llmops-runs-open"
        aria-keyshortcuts="Enter Space"
        title={tooltip(run)}
        onClick={open}
      >
        <Name className="llmops-runs-name" text={shown} from={from} />
        {shown !== run.run_id && (
          <Name
            className="llmops-runs-id"
            text={run.run_id}
            from={tailOf(run.run_id)}
          />
        )}
        <span className="llmops-runs-line">
          <span className="llmops-runs-facts">
            <StateBadge state={run.state} />
            <Ellipsed text={props.when} title="" />
          </span>
          {run.curve.length > 1 && (
            <Sparkline
              values={run.curve}
              label={trans.__('Curve of %1: %2', run.curve_label, shown)}
            />
          )}
        </span>
        <span className="llmops-runs-figures">
          {figures(run).map(text => (
            <span key={text}>{text}</span>
          ))}
        </span>
        {why(run) && (
          <span className="llmops-runs-why" data-state={run.state}>
            {why(run)}
          </span>
        )}
        {!hasEnded(run) && <Progress run={run} />}
      </button>
      <Actions {...props} />
    </li>
  );
});

function Actions({ run, execute }: IRowProps): JSX.Element {
  const act = (command: string) => () => execute(command, run.run_id);
  const can = (action: RunRow['actions'][number]) =>
    run.actions.includes(action);
  return (
    <span className="llmops-runs-actions">
      <IconButton
        icon={run.starred ? starredIcon : starIcon}
        label={run.starred ? trans.__('Remove the star') : trans.__('Star')}
        pressed={run.starred}
        onClick={act(CommandIDs.starRun)}
      />
      {can('stop') && (
        <IconButton
          icon={stopIcon}
          label={trans.__('Stop')}
          onClick={act(CommandIDs.stopRun)}
        />
      )}
      {can('delete') && can('resubmit') && (
        <IconButton
          icon={refreshIcon}
          label={trans.__('Re-submit with edits…')}
          onClick={act(CommandIDs.resubmitRun)}
        />
      )}
      {can('delete') && (
        <IconButton
          icon={deleteIcon}
          label={trans.__('Delete…')}
          onClick={act(CommandIDs.deleteRun)}
        />
      )}
    </span>
  );
}

function Progress(props: { run: RunRow }): JSX.Element {
  const { fraction } = props.run;
  return (
    <span
      className="llmops-runs-progress"
      role="progressbar"
      aria-label={trans.__('Progress')}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={fraction === null ? undefined : Math.round(100 * fraction)}
    >
      <span style={{ width: `${100 * (fraction ?? 0)}%` }} />
    </span>
  );
}

/** `40 / 100 steps`, `loss 1.234`, `MFU 12 %`; what is unknown is left out. */
export function figures(run: RunRow): string[] {
  const { progress } = run;
  const done = progress
    ? [`${fmt.steps(progress.done, progress.total)} ${progress.unit}`]
    : [];
  const parts = [...done, ...knownFigures(run, { listed: true })];
  return parts.length || hasEnded(run) || run.reason
    ? parts
    : [trans.__('no progress yet')];
}

/** What a run waits for, why it starts again, why it has failed; else empty. */
export function why(run: RunRow): string {
  return run.state === 'FAILED' ? run.message : run.reason;
}

/** `2 min left` when that is known, `12 s so far` before; `3 h ago` after the end. */
export function when(run: RunRow, nowS: number): string {
  const age = fmt.age(run.created_s, nowS);
  if (hasEnded(run)) {
    return age === 'now' ? trans.__('just now') : trans.__('%1 ago', age);
  }
  if (run.eta_s !== null) {
    const left = fmt.duration(run.eta_s);
    return run.eta_is_least
      ? trans.__('> %1 left', left)
      : trans.__('%1 left', left);
  }
  return age === 'now' ? '' : trans.__('%1 so far', age);
}

function tooltip(run: RunRow): string {
  const lines = [
    nameWithId(run),
    `${run.state.toLowerCase()}, ${trans.__('attempt')} ${run.attempt}, ${trans.__('cluster')} ${run.cluster}`,
    run.reason,
    run.message,
    run.remedy && `${trans.__('Try:')} ${run.remedy}`,
    ...knownFigures(run)
  ];
  return lines.filter(Boolean).join('\n');
}
