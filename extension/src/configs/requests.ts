import { ILLMOps } from '../tokens';
import {
  CheckBody,
  ConfigCheck,
  ConfigCompletion,
  ConfigData,
  ConfigHover,
  ConfigPlan,
  ConfigText,
  CursorBody,
  DataBody,
  DataRow,
  DataRowBody,
  OperationInfo,
  PlanBody
} from '../wire';

/**
 * What is handed to a cluster: a file, or a text with the folder that travels with it.
 */
export interface ISubmission {
  path?: string;
  text?: string;
  workspace?: string;
}

export function check(
  llmops: ILLMOps,
  body: CheckBody,
  signal?: AbortSignal
): Promise<ConfigCheck> {
  return post(llmops, 'configs/check', body, signal);
}

export function data(
  llmops: ILLMOps,
  body: DataBody,
  signal?: AbortSignal
): Promise<ConfigData> {
  return post(llmops, 'configs/data', body, signal);
}

export function plan(
  llmops: ILLMOps,
  body: PlanBody,
  signal?: AbortSignal
): Promise<ConfigPlan> {
  return post(llmops, 'configs/plan', body, signal);
}

export function dataRow(
  llmops: ILLMOps,
  body: DataRowBody,
  signal?: AbortSignal
): Promise<DataRow> {
  return post(llmops, 'configs/data/row', body, signal);
}

export function complete(
  llmops: ILLMOps,
  body: CursorBody,
  signal?: AbortSignal
): Promise<ConfigCompletion[]> {
  return post(llmops, 'configs/complete', body, signal);
}

export function hover(
  llmops: ILLMOps,
  body: CursorBody
): Promise<ConfigHover | null> {
  return post(llmops, 'configs/hover', body);
}

export async function template(llmops: ILLMOps, kind: string): Promise<string> {
  const path = `configs/template?kind=${encodeURIComponent(kind)}`;
  return (await llmops.request<ConfigText>(path)).text;
}

export function submit(
  llmops: ILLMOps,
  what: ISubmission,
  cluster: string,
  overrides: string[],
  strict: boolean
): Promise<OperationInfo> {
  return post(llmops, 'runs', { ...what, cluster, overrides, strict });
}

/** Start a cluster from a template file, or again by its name. */
export function up(
  llmops: ILLMOps,
  from: { path: string } | { template: string }
): Promise<OperationInfo> {
  return post(llmops, 'clusters', from);
}

export function resume(
  llmops: ILLMOps,
  cluster: string
): Promise<OperationInfo> {
  return post(llmops, `clusters/${encodeURIComponent(cluster)}/resume`, {});
}

function post<T>(
  llmops: ILLMOps,
  path: string,
  body: unknown,
  signal?: AbortSignal
): Promise<T> {
  return llmops.request<T>(path, { method: 'POST', body, signal });
}
