import { ILLMOps } from '../../tokens';
import { ChatBody, ChatHistory, OperationInfo } from '../../wire';

function at(runId: string): string {
  return `runs/${encodeURIComponent(runId)}/chat`;
}

export function history(llmops: ILLMOps, runId: string): Promise<ChatHistory> {
  return llmops.request(at(runId));
}

/** The result of the operation has the turn's id as `run_id`. */
export function ask(
  llmops: ILLMOps,
  runId: string,
  body: ChatBody
): Promise<OperationInfo> {
  return llmops.request(at(runId), { method: 'POST', body });
}
