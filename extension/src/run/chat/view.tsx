import { Clipboard } from '@jupyterlab/apputils';
import { copyIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { ILLMOps, IOperations } from '../../tokens';
import { trans } from '../../trans';
import { useChanges } from '../../ui/hooks';
import { Busy, EmptyState, IconButton, TroubleBox } from '../../ui/parts';
import { ChatMessage, ChatSide, ChatTurn, RunState } from '../../wire';
import * as requests from '../requests';
import { ChatModel } from './model';
import { PromptBox } from './prompt';

interface IProps {
  model: ChatModel;
}

/**
 * One prompt to the fine-tuned model and to its base, their answers in two columns.
 */
export function ChatView(props: IProps): JSX.Element {
  const { model } = props;
  useChanges(model);
  return (
    <div className="llmops-chat">
      <Conversation {...props} />
      {model.trouble && <TroubleBox trouble={model.trouble} />}
      <PromptBox model={model} />
    </div>
  );
}

function Conversation(props: IProps): JSX.Element {
  const { model } = props;
  const { turn, pending } = model;
  const scroll = useScrolledToEnd(pending !== '', turn);
  return (
    <div className="llmops-chat-scroll" ref={scroll}>
      {model.isLoading && <Busy text={trans.__('Reading the conversation…')} />}
      {!model.isLoading && !turn && !pending && (
        <EmptyState title={trans.__('Ask both models')}>
          {trans.__(
            'The same prompt goes to the fine-tuned model and to its base. The first prompt loads them, which may take a while.'
          )}
        </EmptyState>
      )}
      {turn && <Columns turn={turn} pending={pending} />}
      {!turn && pending && <Message role="user" text={pending} />}
      {turn?.warnings.map(text => (
        <TroubleBox
          key={text}
          kind="warn"
          trouble={{ message: text, remedy: '', problems: [] }}
        />
      ))}
      {turn?.message && (
        <TroubleBox
          trouble={{ message: turn.message, remedy: turn.remedy, problems: [] }}
        />
      )}
      {(pending || turn?.line) && (
        <Busy
          text={
            pending
              ? trans.__('Submitting the prompt to the cluster…')
              : (turn?.line ?? '')
          }
        />
      )}
    </div>
  );
}

/**
 * Follows the newest words, unless the reader has scrolled up; a new prompt is always shown.
 *
 * A window of another width breaks the lines elsewhere, and a tab that was hidden is scrolled to
 * its top: both keep the newest words in view if they were.
 */
function useScrolledToEnd(
  isAsking: boolean,
  turn: ChatTurn | null
): React.RefObject<HTMLDivElement> {
  const host = React.useRef<HTMLDivElement>(null);
  const isAtEnd = React.useRef(true);
  const follow = () => {
    const { current } = host;
    if (current && isAtEnd.current) {
      current.scrollTop = current.scrollHeight;
    }
  };
  React.useEffect(() => {
    const { current } = host;
    if (!current) {
      return;
    }
    let width = current.clientWidth;
    const onScroll = () => {
      // A scroll that another width has caused is not the reader's.
      if (current.clientWidth === width) {
        const { scrollTop, clientHeight, scrollHeight } = current;
        isAtEnd.current = scrollTop + clientHeight > scrollHeight - 48;
      }
    };
    current.addEventListener('scroll', onScroll);
    const sizes = new ResizeObserver(() => {
      width = current.clientWidth;
      follow();
    });
    sizes.observe(current);
    return () => {
      current.removeEventListener('scroll', onScroll);
      sizes.disconnect();
    };
  }, []);
  React.useLayoutEffect(() => {
    isAtEnd.current ||= isAsking;
    follow();
  }, [isAsking, turn]);
  return host;
}

function Columns(props: { turn: ChatTurn; pending: string }): JSX.Element {
  const { turn, pending } = props;
  const names: Record<string, string> = {
    base: trans.__('Base'),
    tuned: trans.__('Fine-tuned')
  };
  return (
    <div className="llmops-chat-columns" data-count={turn.sides.length}>
      {turn.sides.map(side => (
        <section
          key={side.name}
          className="llmops-chat-side"
          data-model={side.name}
          aria-label={trans.__('Answers of the model: %1', names[side.name])}
        >
          <h3 title={side.model}>
            {names[side.name] ?? side.name}
            <small>{shortName(side.model)}</small>
          </h3>
          <div role="log" aria-busy={!side.is_final}>
            {side.messages.map((message, index) => (
              <Message
                key={index}
                role={message.role as ChatMessage['role']}
                text={message.content}
              />
            ))}
            <Answer side={side} isOver={turn.is_over} />
            {pending && <Message role="user" text={pending} />}
          </div>
        </section>
      ))}
    </div>
  );
}

/** The last part of a path or of a hub id. */
export function shortName(model: string): string {
  return model.split('/').filter(Boolean).pop() ?? model;
}

function Message(props: { role: string; text: string }): JSX.Element {
  const { role, text } = props;
  const who: Record<string, string> = {
    user: trans.__('You'),
    system: trans.__('Instructions'),
    assistant: trans.__('Answer')
  };
  return (
    <div className="llmops-chat-message" data-role={role}>
      <span className="llmops-chat-who">{who[role] ?? role}</span>
      <div className="llmops-chat-text">{text}</div>
      {role === 'assistant' && <Copy text={text} />}
    </div>
  );
}

function Answer(props: { side: ChatSide; isOver: boolean }): JSX.Element {
  const { side, isOver } = props;
  // A turn that was stopped before a model began leaves its answer without an end.
  const isGrowing = !side.is_final && !isOver;
  return (
    <div
      className="llmops-chat-message"
      data-role="assistant"
      data-final={side.is_final}
    >
      <span className="llmops-chat-who">{trans.__('Answer')}</span>
      <div className="llmops-chat-text">
        {side.text}
        {isGrowing && side.text && (
          <span className="llmops-chat-caret" aria-hidden="true" />
        )}
      </div>
      {isGrowing && !side.text && (
        <div className="llmops-chat-waiting">
          {trans.__('Waiting for the engine…')}
        </div>
      )}
      {side.error && (
        <TroubleBox
          trouble={{ message: side.error, remedy: side.remedy, problems: [] }}
        />
      )}
      <div className="llmops-chat-facts">
        <span>{facts(side)}</span>
        {side.text && <Copy text={side.text} />}
      </div>
    </div>
  );
}

/** `24 tokens · 31 tokens/s · first after 1.2 s · cut at the longest answer` */
export function facts(side: ChatSide): string {
  const ends: Record<string, string> = {
    length: trans.__('cut at the longest answer'),
    cancelled: trans.__('stopped')
  };
  const rate = side.tokens_per_second;
  const first = side.first_token_s;
  return [
    side.output_tokens > 0
      ? trans._n('%1 token', '%1 tokens', side.output_tokens)
      : '',
    rate !== null
      ? trans.__('%1 tokens/s', rate.toFixed(rate < 10 ? 1 : 0))
      : '',
    first !== null ? trans.__('first after %1 s', first.toFixed(1)) : '',
    ends[side.finish] ?? ''
  ]
    .filter(Boolean)
    .join(' · ');
}

function Copy(props: { text: string }): JSX.Element {
  return (
    <IconButton
      icon={copyIcon}
      label={trans.__('Copy the answer')}
      onClick={() => Clipboard.copyToSystem(props.text)}
    />
  );
}

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
      history: () => requests.chatHistory(llmops, runId),
      ask: async body => {
        const started = await requests.askChat(llmops, runId, body);
        const { result } = await operations.finished(started);
        return String(result.run_id);
      },
      stop: async turnId => {
        await operations.finished(await requests.act(llmops, turnId, 'stop'));
      }
    });
    setModel(made);
    void made.load();
    return () => made.dispose();
  }, [runId]);
  return model && <ChatView model={model} />;
}
