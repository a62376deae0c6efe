import { describe, expect, it, vi } from 'vitest';

import { ApiError } from '../../../api';
import { ChatBody, ChatSide, ChatTurn } from '../../../wire';
import { FakeLive } from '../../__tests__/fakes';
import { ChatModel, IChatServer } from '../model';
import { shortName } from '../view';

function side(name: string, text: string): ChatSide {
  return {
    name,
    model: 'hub/tiny',
    messages: [{ role: 'user', content: 'hi' }],
    text,
    is_final: false,
    finish: '',
    error: '',
    remedy: '',
    output_tokens: 1,
    tokens_per_second: null,
    first_token_s: null
  };
}

function turn(id: string, more: Partial<ChatTurn> = {}): ChatTurn {
  return {
    id,
    run_id: 'lora-1',
    state: 'RUNNING',
    is_over: false,
    line: '',
    message: '',
    remedy: '',
    warnings: [],
    sides: [side('base', 'a'), side('tuned', 'b')],
    ...more
  };
}

function made(more: Partial<IChatServer> = {}): {
  live: FakeLive;
  model: ChatModel;
  asked: ChatBody[];
  stopped: string[];
} {
  const live = new FakeLive();
  const asked: ChatBody[] = [];
  const stopped: string[] = [];
  const model = new ChatModel({
    live,
    history: async () => ({ turn: null }),
    ask: async body => {
      asked.push(body);
      return `chat-${asked.length}`;
    },
    stop: async id => {
      stopped.push(id);
    },
    ...more
  });
  return { live, model, asked, stopped };
}

function say(live: FakeLive, said: ChatTurn): void {
  live.say(`chat/${said.id}`, 'chat', said as never);
}

describe('ChatModel', () => {
  it('continues the turn before', async () => {
    const { live, model, asked } = made();
    await model.load();
    expect(await model.ask('one')).toBe(true);
    expect(model.pending).toBe('one');
    say(live, turn('chat-1'));
    expect(model.pending).toBe('');
    expect(model.isBusy).toBe(true);
    expect(await model.ask('too early')).toBe(false);
    say(live, turn('chat-1', { is_over: true, state: 'SUCCEEDED' }));
    expect(model.isBusy).toBe(false);
    expect(live.subscriptions).toEqual([]);
    await model.ask('two');
    expect(asked.map(({ after }) => after)).toEqual(['', 'chat-1']);
  });

  it('begins a new conversation', async () => {
    const { live, model, asked } = made();
    await model.ask('one');
    say(live, turn('chat-1', { is_over: true }));
    model.reset();
    expect(model.turn).toBeNull();
    await model.ask('two');
    expect(asked[1].after).toBe('');
  });

  it('shows the conversation of the server and follows its answer', async () => {
    const { live, model } = made({
      history: async () => ({ turn: turn('chat-9') })
    });
    await model.load();
    expect(model.turn?.id).toBe('chat-9');
    expect(live.subscriptions.map(({ topic }) => topic)).toEqual([
      'chat/chat-9'
    ]);
    model.dispose();
    expect(live.subscriptions).toEqual([]);
  });

  it('reports a refused prompt and may ask again', async () => {
    const trouble = {
      message: 'no cluster',
      remedy: 'llmops up',
      problems: []
    };
    const ask = vi.fn().mockRejectedValue(new ApiError(500, trouble));
    const { model } = made({ ask });
    expect(await model.ask('one')).toBe(false);
    expect(model.trouble?.remedy).toBe('llmops up');
    expect(model.isBusy).toBe(false);
  });

  it('stops a prompt that the cluster does not have yet', async () => {
    let accept: (id: string) => void = () => undefined;
    const { model, stopped } = made({
      ask: () => new Promise(resolve => (accept = resolve))
    });
    const asking = model.ask('one');
    await model.stop();
    expect(stopped).toEqual([]);
    accept('chat-1');
    await asking;
    expect(stopped).toEqual(['chat-1']);
  });
});

describe('shortName', () => {
  it('is the end of a path or of a hub id', () => {
    expect(shortName('HuggingFaceTB/SmolLM2-135M')).toBe('SmolLM2-135M');
    expect(shortName('/models/tiny/')).toBe('tiny');
    expect(shortName('tiny-llama')).toBe('tiny-llama');
  });
});
