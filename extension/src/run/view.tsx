import * as React from 'react';

import { asTrouble } from '../api';
import { IChartSettings, ILLMOps, IOperations, IRunsModel } from '../tokens';
import { trans } from '../trans';
import { useChanges } from '../ui/hooks';
import { Loading } from '../ui/parts';
import { RunAttempt, RunDetail, Trouble } from '../wire';
import { AttemptsSection } from './attemptsView';
import { canChat, ChatSection } from './chat/view';
import { ConfigSection } from './configView';
import { LiveSection } from './live';
import { LogModel } from './logModel';
import { LogView } from './logView';
import { RunModel, RunModels } from './model';
import { NotesSection } from './notesView';
import * as requests from './requests';

export interface IRunViewServices {
  llmops: ILLMOps;
  operations: IOperations;
  models: RunModels;
  runs: IRunsModel;
  charts: IChartSettings;
  showPath: (path: string, contentsPath: string | null) => void;
  tryChange: (runId: string, overrides: string[]) => void;
  openJob: (attempt: RunAttempt) => void;
}

interface IProps extends IRunViewServices {
  model: RunModel;
  log: LogModel;
}

const TABS = ['live', 'log', 'config', 'attempts', 'chat', 'notes'] as const;
type Tab = (typeof TABS)[number];

/**
 * One run: live panel, log, config and code, attempts and outputs, notes.
 */
export function RunView(props: IProps): JSX.Element {
  const { model, llmops, operations } = props;
  useChanges(model);
  const [tab, setTab] = React.useState<Tab>('live');
  const [seen, setSeen] = React.useState<ReadonlySet<Tab>>(new Set(['live']));
  const labels: Record<Tab, string> = {
    live: trans.__('Live'),
    log: trans.__('Log'),
    config: trans.__('Config & Code'),
    attempts: trans.__('Attempts & Outputs'),
    chat: trans.__('Try it'),
    notes: trans.__('Notes')
  };
  const choose = (chosen: Tab) => {
    setTab(chosen);
    setSeen(new Set([...seen, chosen]));
  };
  const tabs = TABS.filter(name => name !== 'chat' || canChat(model.state));
  const content: Record<Tab, () => JSX.Element> = {
    live: () => (
      <LiveSection
        model={model}
        charts={props.charts}
        samples={first => requests.samples(props.llmops, model.runId, first)}
        tryChange={overrides => props.tryChange(model.runId, overrides)}
        profile={async steps =>
          operations.finished(
            await requests.profile(llmops, model.runId, { steps })
          )
        }
        restart={async () =>
          operations.finished(
            await requests.act(llmops, model.runId, 'restart')
          )
        }
        profileOf={number => requests.profileOf(llmops, model.runId, number)}
      />
    ),
    log: () => <LogSection {...props} isShown={tab === 'log'} />,
    config: () => <DetailSection {...props} kind="config" />,
    attempts: () => <DetailSection {...props} kind="attempts" />,
    chat: () => <ChatSection {...props} runId={model.runId} />,
    notes: () => (
      <NotesSection
        model={model}
        save={changes => requests.annotate(props.llmops, model.runId, changes)}
      />
    )
  };
  return (
    <div className="llmops-runpanel-content">
      <Tabs
        tabs={tabs}
        labels={labels}
        tab={tab}
        choose={choose}
        id={model.runId}
      />
      <Loading
        isKnown={model.isKnown}
        trouble={model.trouble}
        text={trans.__('Reading the run…')}
      >
        <div>{trans.__('The data shown may be out of date.')}</div>
      </Loading>
      {tabs
        .filter(name => seen.has(name))
        .map(name => (
          <div
            key={name}
            id={`llmops-${model.runId}-${name}`}
            role="tabpanel"
            aria-label={labels[name]}
            className={`llmops-runpanel-section llmops-runpanel-${name}`}
            hidden={name !== tab}
          >
            {content[name]()}
          </div>
        ))}
    </div>
  );
}

function Tabs(props: {
  tabs: readonly Tab[];
  labels: Record<Tab, string>;
  tab: Tab;
  choose: (tab: Tab) => void;
  id: string;
}): JSX.Element {
  const { tabs, labels, tab, choose, id } = props;
  const list = React.useRef<HTMLDivElement>(null);
  const move = (event: React.KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step !== undefined) {
      const at = (tabs.indexOf(tab) + step + tabs.length) % tabs.length;
      choose(tabs[at]);
      (list.current?.children[at] as HTMLElement | undefined)?.focus();
    }
  };
  return (
    <div
      ref={list}
      role="tablist"
      className="llmops-runpanel-tabs"
      onKeyDown={move}
    >
      {tabs.map(name => (
        <button
          key={name}
          type="button"
          role="tab"
          aria-selected={name === tab}
          aria-controls={`llmops-${id}-${name}`}
          data-label={labels[name]}
          tabIndex={name === tab ? 0 : -1}
          onClick={() => choose(name)}
        >
          {labels[name]}
        </button>
      ))}
    </div>
  );
}

function LogSection(props: IProps & { isShown: boolean }): JSX.Element {
  const { model, log, llmops, isShown } = props;
  const state = model.state;
  const size = state?.log_size ?? null;
  const isOver = state?.is_over ?? false;
  React.useEffect(() => {
    if (isShown) {
      void log.grown();
    }
  }, [isShown, size, isOver]);
  // If the log is not on the server's disk, only a request shows whether it grew.
  const isElsewhere = size === null && !isOver;
  React.useEffect(() => {
    if (!isShown || !isElsewhere) {
      return;
    }
    const timer = setInterval(() => void log.grown(), 3000);
    return () => clearInterval(timer);
  }, [isShown, isElsewhere]);
  return (
    <LogView
      model={log}
      attempts={state?.attempts ?? []}
      isOver={isOver}
      download={attempt => requests.logUrl(llmops, model.runId, attempt)}
    />
  );
}

function DetailSection(
  props: IProps & { kind: 'config' | 'attempts' }
): JSX.Element {
  const { model, llmops, kind } = props;
  const [detail, setDetail] = React.useState<RunDetail | null>(null);
  const [trouble, setTrouble] = React.useState<Trouble | null>(null);
  const { attempts, is_over } = model.state ?? {};
  const outputs = model.state?.panel.outputs.length;
  React.useEffect(() => {
    requests.detail(llmops, model.runId).then(
      detail => {
        setDetail(detail);
        setTrouble(null);
      },
      error => setTrouble(asTrouble(error))
    );
  }, [attempts?.length, is_over, outputs]);
  return (
    <>
      <Loading
        isKnown={detail !== null}
        trouble={trouble}
        text={trans.__('Reading the run…')}
      />
      {detail &&
        (kind === 'config' ? (
          <ConfigSection {...props} detail={detail} />
        ) : (
          <AttemptsSection {...props} detail={detail} />
        ))}
    </>
  );
}
