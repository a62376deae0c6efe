import { ILLMOps } from '../tokens';
import {
  ActionPreview,
  ClusterInfo,
  ConfigCheck,
  ConfigText,
  KeepBody,
  OperationInfo,
  ScaleBody,
  TemplateInfo,
  UpBody
} from '../wire';

export type ClusterAction = 'suspend' | 'resume' | 'scale' | 'delete';

function path(cluster: string): string {
  return `clusters/${encodeURIComponent(cluster)}`;
}

export function previewAction(
  llmops: ILLMOps,
  cluster: string,
  action: ClusterAction
): Promise<ActionPreview> {
  return llmops.request(`${path(cluster)}/preview?action=${action}`);
}

/** Returns at once; the operation reports its progress. */
export function startAction(
  llmops: ILLMOps,
  cluster: string,
  action: ClusterAction,
  numbers?: ScaleBody
): Promise<OperationInfo> {
  return action === 'delete'
    ? llmops.request(path(cluster), { method: 'DELETE' })
    : llmops.request(`${path(cluster)}/${action}`, {
        method: 'POST',
        body: numbers ?? {}
      });
}

/** No idle guard touches it for so long from now; 0 takes that back. */
export function keepCluster(
  llmops: ILLMOps,
  cluster: string,
  forS: number
): Promise<ClusterInfo> {
  const body: KeepBody = { for_s: forS };
  return llmops.request(`${path(cluster)}/keep`, { method: 'POST', body });
}

export function startCluster(
  llmops: ILLMOps,
  body: UpBody
): Promise<OperationInfo> {
  return llmops.request('clusters', { method: 'POST', body });
}

export function listTemplates(llmops: ILLMOps): Promise<TemplateInfo[]> {
  return llmops.request('templates');
}

/** The fields of a template depend on its provider. */
export function clusterSchema(
  llmops: ILLMOps,
  provider: string
): Promise<unknown> {
  const chosen = encodeURIComponent(provider);
  return llmops.request(`configs/schema?kind=cluster&provider=${chosen}`);
}

export function checkTemplate(
  llmops: ILLMOps,
  text: string
): Promise<ConfigCheck> {
  return llmops.request('configs/check', {
    method: 'POST',
    body: { kind: 'cluster', text }
  });
}

/** The YAML of a form's values. */
export async function renderTemplate(
  llmops: ILLMOps,
  data: Record<string, unknown>
): Promise<string> {
  const { text } = await llmops.request<ConfigText>('configs/render', {
    method: 'POST',
    body: { kind: 'cluster', data }
  });
  return text;
}
