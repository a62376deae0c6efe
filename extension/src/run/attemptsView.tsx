import { Clipboard } from '@jupyterlab/apputils';
import { copyIcon, folderIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { trans } from '../trans';
import { age, bytes, DASH, duration } from '../ui/format';
import { Ellipsed, EmptyState, IconButton, StateBadge } from '../ui/parts';
import { RunAttempt, RunDetail, RunOutput } from '../wire';

interface IProps {
  detail: RunDetail;
  showPath: (path: string, contentsPath: string | null) => void;
  openJob: (attempt: RunAttempt) => void;
}

/**
 * The tries of a run, and what it has written.
 */
export function AttemptsSection(props: IProps): JSX.Element {
  const { detail } = props;
  const { folder, contents_path, outputs, checkpoints } = detail;
  const own = { what: trans.__('run folder'), path: folder };
  return (
    <div className="llmops-runpanel-page">
      <h3>{trans.__('Attempts')}</h3>
      <Attempts {...props} />
      <h3>{trans.__('Outputs')}</h3>
      {outputs.length === 0 && (
        <EmptyState title={trans.__('No output yet')}>
          {trans.__('A run writes its output after its last step.')}
        </EmptyState>
      )}
      <Paths {...props} items={outputs} />
      {checkpoints.length > 0 && (
        <>
          <h3>{trans.__('Checkpoints')}</h3>
          <Paths {...props} items={[...checkpoints].reverse()} />
        </>
      )}
      <h3>{trans.__('Location')}</h3>
      <Paths {...props} items={[{ ...own, contents_path, size_bytes: null }]} />
      <Facts {...props} />
    </div>
  );
}

function Attempts({ detail, openJob }: IProps): JSX.Element {
  if (detail.attempts.length === 0) {
    return (
      <EmptyState title={trans.__('Not submitted to a cluster yet')}>
        {trans.__('Its client is packing or uploading.')}
      </EmptyState>
    );
  }
  const heads = [
    '#',
    trans.__('State'),
    trans.__('Cluster'),
    trans.__('Submitted'),
    trans.__('Duration'),
    trans.__('Log'),
    ''
  ];
  return (
    <table className="llmops-lab-table llmops-attempts">
      <thead>
        <tr>
          {heads.map((head, index) => (
            <th key={index} scope="col">
              {head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {detail.attempts.map((attempt, index) => (
          <tr key={attempt.number}>
            <th scope="row">{attempt.number}</th>
            <td title={attempt.message}>
              <AttemptState
                attempt={attempt}
                now={
                  index === detail.attempts.length - 1 ? detail.row.state : ''
                }
              />
            </td>
            <td>{attempt.cluster}</td>
            <td title={new Date(1000 * attempt.submitted_s).toLocaleString()}>
              {trans.__('%1 ago', age(attempt.submitted_s))}
            </td>
            <td>
              {attempt.ended_s === null
                ? trans.__('%1 so far', age(attempt.submitted_s))
                : duration(attempt.ended_s - attempt.submitted_s)}
            </td>
            <td>{bytes(attempt.log_bytes)}</td>
            <td>
              <button
                type="button"
                className="llmops-runs-link"
                title={trans.__('Show the job %1', attempt.submission_id)}
                onClick={() => openJob(attempt)}
              >
                {trans.__('Ray job')}
              </button>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Of the newest attempt, as long as it has no end of its own, what the run is doing. */
function AttemptState(props: {
  attempt: RunAttempt;
  now: string;
}): JSX.Element {
  const state = props.attempt.state || props.now;
  return state ? <StateBadge state={state} /> : <>{DASH}</>;
}

function Paths(props: IProps & { items: readonly RunOutput[] }): JSX.Element {
  const { items, showPath } = props;
  return (
    <ul className="llmops-runpanel-paths">
      {items.map(({ what, path, size_bytes, contents_path }) => (
        <li key={path}>
          <span>{what}</span>
          <Ellipsed text={path} className="llmops-runpanel-path" />
          <span>{size_bytes === null ? '' : bytes(size_bytes)}</span>
          <IconButton
            icon={copyIcon}
            label={trans.__('Copy the path')}
            onClick={() => Clipboard.copyToSystem(path)}
          />
          <IconButton
            icon={folderIcon}
            label={trans.__('Show in the file browser')}
            disabled={path.includes('://')}
            onClick={() => showPath(path, contents_path)}
          />
        </li>
      ))}
    </ul>
  );
}

function Facts({ detail }: IProps): JSX.Element {
  const versions = Object.entries(detail.versions);
  return (
    <>
      <h3>{trans.__('Submitted from')}</h3>
      <p>
        {[detail.user, detail.host].filter(Boolean).join(' · ') || DASH}
        {versions.length > 0 && ' · '}
        {versions.map(([name, version]) => `${name} ${version}`).join(', ')}
      </p>
    </>
  );
}
