import * as React from 'react';

import { asTrouble } from '../api';
import { nameWithId } from '../runs/model';
import { IChartSettings, ILLMOps, IRunsModel } from '../tokens';
import { trans } from '../trans';
import { useChanges } from '../ui/hooks';
import { Busy, EmptyState, TroubleBox } from '../ui/parts';
import { RunDetail, RunRow, Trouble } from '../wire';
import { Curves } from './compare/curvesView';
import { CompareModel } from './compare/model';
import { Difference, DiffText } from './difference';
import { RunModels } from './model';
import * as requests from './requests';

const NUM_OTHERS = 100;

interface IProps {
  detail: RunDetail;
  llmops: ILLMOps;
  models: RunModels;
  runs: IRunsModel;
  charts: IChartSettings;
}

/**
 * What ran: config, changes, code; and what differs from any other run.
 */
export function ConfigSection(props: IProps): JSX.Element {
  const { detail } = props;
  const overrides = Object.entries(detail.overrides);
  return (
    <div className="llmops-runpanel-columns">
      <div>
        <h3>{trans.__('Config')}</h3>
        <p className="llmops-runpanel-facts">
          {detail.config_path ?? trans.__('Not from a file')}
          {detail.git && ` · git ${detail.git}`}
        </p>
        {overrides.length > 0 && (
          <>
            <h4>{trans.__('Changes for this run')}</h4>
            <ul className="llmops-runpanel-overrides">
              {overrides.map(([path, value]) => (
                <li key={path}>
                  <code>{`${path}=${String(value)}`}</code>
                </li>
              ))}
            </ul>
          </>
        )}
        <pre tabIndex={0} aria-label={trans.__('Resolved config')}>
          {detail.config_yaml}
        </pre>
        <Code {...props} />
      </div>
      <Against {...props} />
    </div>
  );
}

type File = { path: string; text: string } | null;

function Code({ detail, llmops }: IProps): JSX.Element {
  const runId = detail.row.run_id;
  const [file, setFile] = React.useState<File>(null);
  const [trouble, setTrouble] = React.useState<Trouble | null>(null);
  const show = async (read: Promise<File>) => {
    try {
      setFile(await read);
      setTrouble(null);
    } catch (error) {
      setFile(null);
      setTrouble(asTrouble(error));
    }
  };
  return (
    <>
      <h3>{trans.__('Code')}</h3>
      {detail.git.includes('with changes') && (
        <button
          type="button"
          className="llmops-runs-link"
          onClick={() => void show(requests.gitDiff(llmops, runId))}
        >
          {trans.__('Difference from the git revision')}
        </button>
      )}
      <ul className="llmops-runpanel-files">
        {detail.files.map(path => (
          <li key={path}>
            <button
              type="button"
              className="llmops-runs-link"
              aria-expanded={file?.path === path}
              onClick={() => void show(requests.codeFile(llmops, runId, path))}
            >
              {path}
            </button>
          </li>
        ))}
      </ul>
      {trouble && <TroubleBox kind="warn" trouble={trouble} />}
      {file && (
        <figure className="llmops-codediff">
          <figcaption>{file.path}</figcaption>
          {file.path === 'git.diff' ? (
            <DiffText text={file.text} />
          ) : (
            <pre tabIndex={0}>{file.text}</pre>
          )}
        </figure>
      )}
    </>
  );
}

/** The difference to another run beside the difference of the curves. */
function Against(props: IProps): JSX.Element {
  const { detail, runs } = props;
  const own = detail.row.run_id;
  const others = runs.runs
    .filter(run => run.run_id !== own)
    .slice(0, NUM_OTHERS);
  const [other, setOther] = React.useState(() => usual(detail.row, others));
  return (
    <div>
      <h3>{trans.__('Difference from another run')}</h3>
      {others.length === 0 ? (
        <EmptyState title={trans.__('There is no other run')}>
          {trans.__('Re-submit this one with an edit, then compare.')}
        </EmptyState>
      ) : (
        <select
          className="jp-mod-styled"
          aria-label={trans.__('Other run')}
          value={other}
          onChange={event => setOther(event.target.value)}
        >
          <option value="">{trans.__('Choose a run…')}</option>
          {others.map(run => (
            <option key={run.run_id} value={run.run_id}>
              {nameWithId(run)}
            </option>
          ))}
        </select>
      )}
      {other && <Pair key={other} {...props} other={other} />}
    </div>
  );
}

/** The run that it was re-submitted from, else the one before it. */
export function usual(row: RunRow, others: readonly RunRow[]): string {
  const parent = others.find(run => run.run_id === row.parent);
  const before = others.find(
    run => run.name === row.name && run.created_s < row.created_s
  );
  return (parent ?? before)?.run_id ?? '';
}

function Pair(props: IProps & { other: string }): JSX.Element {
  const { detail, llmops, models, other } = props;
  const [model, setModel] = React.useState<CompareModel | null>(null);
  React.useEffect(() => {
    const runIds = [other, detail.row.run_id];
    const made = new CompareModel(llmops, models, runIds, other);
    setModel(made);
    return () => made.dispose();
  }, [other]);
  return model ? <Shown {...props} model={model} /> : <></>;
}

function Shown(props: IProps & { model: CompareModel }): JSX.Element {
  const { model } = props;
  useChanges(model);
  return (
    <>
      {model.trouble && <TroubleBox kind="warn" trouble={model.trouble} />}
      {!model.comparison && !model.trouble && (
        <Busy text={trans.__('Comparing…')} />
      )}
      {model.comparison?.differences.map(difference => (
        <Difference
          key={difference.after}
          difference={difference}
          runs={model.comparison?.runs ?? []}
        />
      ))}
      <Curves model={model} charts={props.charts} />
    </>
  );
}
