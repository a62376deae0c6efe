import { ILLMOps } from '../tokens';
import {
  ChatBody,
  ChatHistory,
  Comparison,
  FileText,
  LogMatches,
  LogWindow,
  NotesBody,
  OperationInfo,
  PanelSamples,
  ProfileBody,
  ProfileDetail,
  QueueBody,
  ResubmitBody,
  RunDetail,
  RunPreview,
  ScoreComparison,
  ScoredRows
} from '../wire';

function at(runId: string, rest = ''): string {
  return `runs/${encodeURIComponent(runId)}${rest}`;
}

function query(
  values: Record<string, string | number | boolean | undefined>
): string {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined) {
      parts.set(name, typeof value === 'boolean' ? `${+value}` : `${value}`);
    }
  }
  return `?${parts.toString()}`;
}

export function detail(llmops: ILLMOps, runId: string): Promise<RunDetail> {
  return llmops.request(at(runId));
}

export function samples(
  llmops: ILLMOps,
  runId: string,
  first: number
): Promise<PanelSamples> {
  return llmops.request(at(runId, `/samples${query({ first })}`));
}

export function preview(llmops: ILLMOps, runId: string): Promise<RunPreview> {
  return llmops.request(at(runId, '/preview'));
}

export function annotate(
  llmops: ILLMOps,
  runId: string,
  body: NotesBody
): Promise<unknown> {
  return llmops.request(at(runId), { method: 'PATCH', body });
}

export function remove(llmops: ILLMOps, runId: string): Promise<OperationInfo> {
  return llmops.request(at(runId), { method: 'DELETE', body: {} });
}

export function act(
  llmops: ILLMOps,
  runId: string,
  action: 'stop' | 'retry' | 'restart'
): Promise<OperationInfo> {
  return llmops.request(at(runId, `/${action}`), { method: 'POST', body: {} });
}

/** Profile its next steps. */
export function profile(
  llmops: ILLMOps,
  runId: string,
  body: ProfileBody
): Promise<OperationInfo> {
  return llmops.request(at(runId, '/profile'), { method: 'POST', body });
}

/** Move it in the queue of its cluster. */
export function move(
  llmops: ILLMOps,
  runId: string,
  body: QueueBody
): Promise<OperationInfo> {
  return llmops.request(at(runId, '/queue'), { method: 'POST', body });
}

/** One of its profiles, counted from 0. */
export function profileOf(
  llmops: ILLMOps,
  runId: string,
  number: number
): Promise<ProfileDetail> {
  return llmops.request(at(runId, `/profile${query({ number })}`));
}

export function resubmit(
  llmops: ILLMOps,
  runId: string,
  body: ResubmitBody
): Promise<OperationInfo> {
  return llmops.request(at(runId, '/resubmit'), { method: 'POST', body });
}

export function codeFile(
  llmops: ILLMOps,
  runId: string,
  path: string
): Promise<FileText> {
  return llmops.request(at(runId, `/file${query({ path })}`));
}

export function gitDiff(llmops: ILLMOps, runId: string): Promise<FileText> {
  return llmops.request(at(runId, '/git-diff'));
}

export function compare(
  llmops: ILLMOps,
  runIds: readonly string[],
  base?: string
): Promise<Comparison> {
  return llmops.request(`compare${query({ runs: runIds.join(','), base })}`);
}

export function compareScores(
  llmops: ILLMOps,
  runIds: readonly string[]
): Promise<ScoreComparison> {
  return llmops.request(`compare/scores${query({ runs: runIds.join(',') })}`);
}

export function scoredRows(
  llmops: ILLMOps,
  runIds: readonly string[],
  which: {
    kind: ScoredRows['kind'];
    metric: string | null;
    offset: number;
    limit: number;
  }
): Promise<ScoredRows> {
  const { metric, ...others } = which;
  const values = { ...others, metric: metric ?? undefined };
  return llmops.request(
    `compare/rows${query({ runs: runIds.join(','), ...values })}`
  );
}

/**
 * Where in a log to read: from a line on, up to a line, or its end.
 */
export interface ILogPlace {
  attempt?: number;
  offset?: number;
  before?: number;
  limit?: number;
}

export function logWindow(
  llmops: ILLMOps,
  runId: string,
  place: ILogPlace,
  signal?: AbortSignal
): Promise<LogWindow> {
  return llmops.request(at(runId, `/log${query({ ...place })}`), { signal });
}

export interface ILogSearch {
  attempt?: number;
  text: string;
  regex: boolean;
  ignore_case: boolean;
  start: number;
  backwards: boolean;
  limit?: number;
}

export function searchLog(
  llmops: ILLMOps,
  runId: string,
  search: ILogSearch,
  signal?: AbortSignal
): Promise<LogMatches> {
  const path = at(runId, `/log/search${query({ ...search })}`);
  return llmops.request(path, { signal });
}

export function logUrl(
  llmops: ILLMOps,
  runId: string,
  attempt?: number
): string {
  return llmops.url(at(runId, '/log/download')) + query({ attempt });
}

export function chatHistory(
  llmops: ILLMOps,
  runId: string
): Promise<ChatHistory> {
  return llmops.request(at(runId, '/chat'));
}

/** The result of the operation has the turn's id as `run_id`. */
export function askChat(
  llmops: ILLMOps,
  runId: string,
  body: ChatBody
): Promise<OperationInfo> {
  return llmops.request(at(runId, '/chat'), { method: 'POST', body });
}
