import * as React from 'react';

import { ILLMOps, IOperations } from '../../tokens';
import { RunState } from '../../wire';
import * as runRequests from '../requests';
import { ChatModel } from './model';
import * as requests from './requests';
import { ChatView } from './view';

const MODELS = ['adapter', 'model', 'merged model'];

/** Whether the run has written a model that can be asked. */
export function canChat(state: RunState | null): boolean {
  return (
    state !== null &&
    state.row.actions.includes('chat') &&
    state.panel.outputs.some(({ what }) => MODELS.includes(what))
  );
}

/**
 * The tab of a run's panel; the conversation is read when it is first shown.
 */
export function ChatSection(props: {
  runId: string;
  llmops: ILLMOps;
  operations: IOperations;
}): JSX.Element | null {
  const { runId, llmops, operations } = props;
  const [model, setModel] = React.useState<ChatModel | null>(null);
  React.useEffect(() => {
    const made = new ChatModel({
      live: llmops.live,
      history: () => requests.history(llmops, runId),
      ask: async body => {
        const started = await requests.ask(llmops, runId, body);
        const { result } = await operations.finished(started);
        return String(result.run_id);
      },
      stop: async turnId => {
        await operations.finished(
          await runRequests.act(llmops, turnId, 'stop')
        );
      }
    });
    setModel(made);
    void made.load();
    return () => made.dispose();
  }, [runId]);
  return model && <ChatView model={model} />;
}
