import {
  codeIcon,
  deleteIcon,
  LabIcon,
  pauseIcon,
  runIcon
} from '@jupyterlab/ui-components';
import * as React from 'react';

import { CommandIDs } from '../commands';
import { dashboardIcon, scaleIcon } from '../icons';
import { trans } from '../trans';
import { dragCode } from '../ui/code';
import * as fmt from '../ui/format';
import { Busy, Ellipsed, IconButton, StateBadge } from '../ui/parts';
import { ClusterInfo, ClusterRow } from '../wire';
import { Details, warmLine } from './details';
import { attachCode, whyNot } from './model';
import { deadline, Notes } from './notes';

export interface IRowProps {
  row: ClusterRow;

  /** By the server's clock. */
  nowS: number;
  execute: (command: string, args: { cluster: string; page?: string }) => void;
  menu: (cluster: string, event: React.MouseEvent) => void;
}

/**
 * One cluster of the side bar; a click shows all that is known of it.
 */
export function Row(props: IRowProps): JSX.Element {
  const { row, nowS } = props;
  const [isOpen, setOpen] = React.useState(false);
  const { info } = row;
  return (
    <li
      className={`llmops-clusters-row ${isOpen ? 'llmops-mod-open' : ''}`}
      data-cluster={row.name}
      data-state={info?.state ?? ''}
      onContextMenu={event => props.menu(row.name, event)}
    >
      <button
        type="button"
        className="llmops-clusters-open"
        title={tooltip(row, nowS)}
        aria-expanded={isOpen}
        onMouseDown={event =>
          dragCode(event.nativeEvent, {
            code: attachCode(row.name),
            label: row.name
          })
        }
        onClick={() => setOpen(!isOpen)}
      >
        <span className="llmops-clusters-line">
          <StateBadge state={info?.state ?? trans.__('asking…')} />
          <Ellipsed className="llmops-clusters-name" text={row.name} title="" />
        </span>
        {showsFigures(info) && <Figures info={info} />}
        <Ellipsed
          className="llmops-clusters-figures"
          text={times(row, nowS)}
          title=""
        />
      </button>
      <Actions {...props} />
      {row.doing && <Busy text={row.progress || row.doing} />}
      <Notes
        row={row}
        nowS={nowS}
        keep={() =>
          props.execute(CommandIDs.keepCluster, { cluster: row.name })
        }
      />
      {isOpen && info && (
        <Details
          info={info}
          openPage={page =>
            props.execute(CommandIDs.openDashboard, { cluster: row.name, page })
          }
        />
      )}
    </li>
  );
}

/** While a cluster starts on Kubernetes, its number of workers is shown already. */
function showsFigures(info: ClusterInfo | null): info is ClusterInfo {
  return (
    info?.state === 'ready' ||
    (info?.state === 'starting' && info.workers_wanted !== null)
  );
}

function Figures(props: { info: ClusterInfo }): JSX.Element {
  const { info } = props;
  const nodes =
    info.workers_wanted === null
      ? `${trans.__('nodes')} ${fmt.count(info.num_nodes)}`
      : `${trans.__('workers')} ${fmt.count(info.workers_ready)}/${fmt.count(info.workers_wanted)}`;
  // Before it is ready Ray reports nothing, and dashes would only use space.
  const parts =
    info.state !== 'ready'
      ? [nodes]
      : [
          nodes,
          `CPUs ${used(info.cpus_used, info.num_cpus)}`,
          `GPUs ${used(info.gpus_used, info.num_gpus)}`,
          `${trans.__('jobs')} ${fmt.count(info.jobs_running)}`
        ];
  return (
    <span className="llmops-clusters-figures llmops-clusters-parts">
      {parts.map(part => (
        <span key={part}>{part}</span>
      ))}
    </span>
  );
}

/** `0.5/2`; what is not known is a dash. */
export function used(part: number | null, total: number | null): string {
  return `${fmt.amount(part)}/${fmt.amount(total)}`;
}

/** `up 3 min · idle 2 min`. */
export function times(row: ClusterRow, nowS: number): string {
  const { info } = row;
  if (info?.state !== 'ready' && info?.state !== 'starting') {
    return '';
  }
  const age = fmt.age(info.created_s, nowS);
  const isUp = info.state === 'ready';
  const parts = [isUp ? trans.__('up %1', age) : trans.__('for %1', age)];
  if (row.idle_since_s !== null) {
    const idle = Math.max(0, Math.round(nowS - row.idle_since_s));
    parts.push(trans.__('idle %1', fmt.duration(idle)));
  } else if (info.jobs_running) {
    parts.push(trans.__('active'));
  }
  parts.push(deadline(info, nowS));
  return parts.filter(Boolean).join(' · ');
}

const ACTIONS: { command: string; icon: LabIcon; action: string }[] = [
  { command: CommandIDs.resumeCluster, icon: runIcon, action: 'resume' },
  { command: CommandIDs.suspendCluster, icon: pauseIcon, action: 'suspend' },
  { command: CommandIDs.scaleCluster, icon: scaleIcon, action: 'scale' },
  { command: CommandIDs.deleteCluster, icon: deleteIcon, action: 'delete' }
];

function Actions(props: IRowProps): JSX.Element {
  const { row, execute } = props;
  const isUp = row.info?.state === 'ready';
  const lives = isUp || row.info?.state === 'starting';
  const labels: Record<string, string> = {
    resume: trans.__('Resume'),
    suspend: trans.__('Suspend…'),
    scale: trans.__('Scale…'),
    delete: trans.__('Delete…')
  };
  // Of the two that exclude each other only the one that may fit is shown.
  const shown = ACTIONS.filter(
    ({ action }) => action !== (lives ? 'resume' : 'suspend')
  );
  return (
    <span className="llmops-clusters-actions">
      <IconButton
        icon={dashboardIcon}
        label={trans.__('Open the Ray Dashboard of %1', row.name)}
        disabled={!isUp}
        onClick={() => execute(CommandIDs.openDashboard, { cluster: row.name })}
      />
      <IconButton
        icon={codeIcon}
        label={trans.__('Insert code that attaches to %1', row.name)}
        onClick={() =>
          execute(CommandIDs.insertClusterCode, { cluster: row.name })
        }
      />
      {shown.map(({ command, icon, action }) => {
        const reason = whyNot(row, action);
        const label = labels[action];
        return (
          <IconButton
            key={action}
            icon={icon}
            label={reason ? `${label} (${reason})` : label}
            disabled={reason !== ''}
            onClick={() => execute(command, { cluster: row.name })}
          />
        );
      })}
    </span>
  );
}

function tooltip(row: ClusterRow, nowS: number): string {
  const { info } = row;
  const lines = [
    `${row.name} (${row.provider || fmt.DASH})`,
    times(row, nowS),
    info ? warmLine(info) : '',
    info?.message,
    info?.remedy && trans.__('Try: %1', info.remedy),
    ...(info?.waiting ?? []).map(reason => reason.message),
    trans.__('Drag it into a notebook to insert a cell that attaches to it.')
  ];
  return lines.filter(Boolean).join('\n');
}
