import { ILLMOps } from '../tokens';
import {
  OperationInfo,
  RunIds,
  RunLosses,
  RunTableAnswer,
  RunTableColumns,
  RunTableQuery,
  RunTableRays,
  RunTagsBody
} from '../wire';

function post<T>(
  llmops: ILLMOps,
  path: string,
  body: unknown,
  signal?: AbortSignal
): Promise<T> {
  return llmops.request<T>(`run-table${path}`, {
    method: 'POST',
    body,
    signal
  });
}

export function table(
  llmops: ILLMOps,
  query: Partial<RunTableQuery>,
  signal: AbortSignal
): Promise<RunTableAnswer> {
  return post(llmops, '', query, signal);
}

export function rays(
  llmops: ILLMOps,
  query: Partial<RunTableQuery>,
  signal: AbortSignal
): Promise<RunTableRays> {
  return post(llmops, '/rays', query, signal);
}

export function ids(
  llmops: ILLMOps,
  query: Partial<RunTableQuery>
): Promise<RunIds> {
  return post(llmops, '/ids', query);
}

export function columns(llmops: ILLMOps): Promise<RunTableColumns> {
  return llmops.request('run-table/columns');
}

export function losses(llmops: ILLMOps, runIds: string[]): Promise<RunLosses> {
  return post(llmops, '/losses', { run_ids: runIds });
}

export function tag(llmops: ILLMOps, body: RunTagsBody): Promise<RunIds> {
  return post(llmops, '/tags', body);
}

export function act(
  llmops: ILLMOps,
  action: 'delete' | 'stop',
  runIds: string[]
): Promise<OperationInfo> {
  return post(llmops, `/${action}`, { run_ids: runIds });
}

export function file(
  llmops: ILLMOps,
  format: 'csv' | 'parquet',
  query: { where: string; sort: string; columns: readonly string[] }
): Promise<ArrayBuffer> {
  const parts = new URLSearchParams({
    format,
    where: query.where,
    sort: query.sort,
    columns: query.columns.join(',')
  });
  return llmops.fetchBytes(`run-table/export?${parts.toString()}`);
}
