import { deleteIcon, refreshIcon, stopIcon } from '@jupyterlab/ui-components';
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { CommandIDs } from '../commands';
import { starIcon, starredIcon } from '../icons';
import * as fmt from '../ui/format';
import { Ellipsed, IconButton, Sparkline, StateBadge } from '../ui/parts';
import { RunRow } from '../wire';
import { hasEnded } from './model';

/** `-2a4c`: the last part of a run's id. */
const TAIL = 5;

export interface IRowProps {
  run: RunRow;
  nowS: number;
  isSelected: boolean;
  trans: TranslationBundle;
  execute: (command: string, runId: string) => void;
  select: (runId: string, isSelected: boolean) => void;
  menu: (runId: string, event: React.MouseEvent) => void;
}

/**
 * One run of the side bar: opens on a click, is chosen for comparing by its box.
 */
export function Row(props: IRowProps): JSX.Element {
  const { run, trans, execute } = props;
  const shown = run.title || run.run_id;
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
        title={tooltip(run, trans)}
        onClick={open}
      >
        <Name text={shown} />
        <span className="llmops-runs-line">
          <span className="llmops-runs-facts">
            <span className="llmops-runs-line">
              <StateBadge state={run.state} />
              <Ellipsed text={when(run, props.nowS, trans)} title="" />
            </span>
            <Ellipsed
              className="llmops-runs-figures"
              text={figures(run, trans)}
              title=""
            />
          </span>
          {run.sparkline.length > 1 && (
            <Sparkline
              points={run.sparkline}
              label={trans.__('Loss curve of %1', shown)}
            />
          )}
        </span>
        {!hasEnded(run) && <Progress value={run.progress} trans={trans} />}
      </button>
      <Actions {...props} />
    </li>
  );
}

/** Ids of one config differ at their end, so that is what is never cut off. */
function Name({ text }: { text: string }): JSX.Element {
  const cut = text.length > 2 * TAIL ? text.length - TAIL : text.length;
  return (
    <span className="llmops-runs-name">
      <Ellipsed text={text.slice(0, cut)} title="" />
      <span>{text.slice(cut)}</span>
    </span>
  );
}

function Actions({ run, trans, execute }: IRowProps): JSX.Element {
  const act = (command: string) => () => execute(command, run.run_id);
  return (
    <span className="llmops-runs-actions">
      <IconButton
        icon={run.starred ? starredIcon : starIcon}
        label={run.starred ? trans.__('Remove the star') : trans.__('Star')}
        pressed={run.starred}
        onClick={act(CommandIDs.starRun)}
      />
      {hasEnded(run) ? (
        <>
          <IconButton
            icon={refreshIcon}
            label={trans.__('Re-submit with edits…')}
            onClick={act(CommandIDs.resubmitRun)}
          />
          <IconButton
            icon={deleteIcon}
            label={trans.__('Delete…')}
            onClick={act(CommandIDs.deleteRun)}
          />
        </>
      ) : (
        <IconButton
          icon={stopIcon}
          label={trans.__('Stop')}
          disabled={run.state === 'STOPPING'}
          onClick={act(CommandIDs.stopRun)}
        />
      )}
    </span>
  );
}

function Progress(props: {
  value: number | null;
  trans: TranslationBundle;
}): JSX.Element {
  const { value, trans } = props;
  return (
    <span
      className="llmops-runs-progress"
      role="progressbar"
      aria-label={trans.__('Steps done')}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={value === null ? undefined : Math.round(100 * value)}
    >
      <span style={{ width: `${100 * (value ?? 0)}%` }} />
    </span>
  );
}

/** `loss 1.234 · MFU 12 % · 40 / 100`; what is not known is left out. */
export function figures(run: RunRow, trans: TranslationBundle): string {
  const parts: string[] = [];
  if (run.loss !== null) {
    parts.push(`${trans.__('loss')} ${fmt.loss(run.loss)}`);
  }
  if (run.mfu !== null) {
    parts.push(`MFU ${fmt.percent(run.mfu)}`);
  }
  if (run.last_step !== null || run.total_steps !== null) {
    parts.push(fmt.steps(run.last_step, run.total_steps));
  }
  return parts.join(' · ') || trans.__('before the first step');
}

/** `2 min left` while steps are made, `12 s so far` before; `3 h ago` when it is over. */
export function when(
  run: RunRow,
  nowS: number,
  trans: TranslationBundle
): string {
  const age = fmt.age(run.created_s, nowS);
  if (hasEnded(run)) {
    return age === 'now' ? trans.__('just now') : trans.__('%1 ago', age);
  }
  if (run.eta_s !== null) {
    return trans.__('%1 left', fmt.duration(run.eta_s));
  }
  return age === 'now' ? '' : trans.__('%1 so far', age);
}

function tooltip(run: RunRow, trans: TranslationBundle): string {
  const lines = [
    run.title ? `${run.title} (${run.run_id})` : run.run_id,
    `${run.state.toLowerCase()}, ${trans.__('attempt')} ${run.attempt}, ${trans.__('cluster')} ${run.cluster}`,
    run.message,
    run.remedy && `${trans.__('Try:')} ${run.remedy}`,
    `${trans.__('submit to first step')} ${fmt.duration(run.submit_to_first_step_s)}`,
    ...Object.entries(run.best_metrics).map(
      ([name, value]) => `${trans.__('best')} ${name} ${fmt.loss(value)}`
    )
  ];
  return lines.filter(Boolean).join('\n');
}
