import * as React from 'react';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';
import { describe, expect, it, vi } from 'vitest';

import { ChatTurn, RunState } from '../../../wire';
import { FakeLive } from '../../__tests__/fakes';
import { ChatModel } from '../model';
import { canChat, ChatView, facts } from '../view';

const SIDE = {
  model: 'hub/tiny',
  messages: [{ role: 'user', content: 'hi' }],
  is_final: true,
  finish: 'length',
  error: '',
  remedy: '',
  output_tokens: 24,
  tokens_per_second: 31.4,
  first_token_s: 1.23
};
const TURN: ChatTurn = {
  id: 'chat-1',
  run_id: 'lora-1',
  state: 'SUCCEEDED',
  is_over: true,
  line: '',
  message: '',
  remedy: '',
  warnings: ['one after the other'],
  sides: [
    { ...SIDE, name: 'base', text: '<b>bold</b>' },
    {
      ...SIDE,
      name: 'tuned',
      text: '',
      finish: 'error',
      error: 'no memory',
      remedy: 'use less'
    }
  ]
};

async function drawn(turn: ChatTurn | null): Promise<string> {
  const model = new ChatModel({
    live: new FakeLive(),
    history: async () => ({ turn }),
    ask: async () => '',
    stop: async () => undefined
  });
  await model.load();
  const host = document.createElement('div');
  const root = createRoot(host);
  flushSync(() => root.render(<ChatView model={model} />));
  const html = host.innerHTML;
  root.unmount();
  return html;
}

describe('ChatView', () => {
  it('shows both answers as text, with facts, errors and warnings', async () => {
    const html = await drawn(TURN);
    expect(html).toContain('&lt;b&gt;bold&lt;/b&gt;');
    expect(html).toContain('24 tokens · 31 tokens/s · first after 1.2 s');
    expect(html).toContain('no memory');
    expect(html).toContain('use less');
    expect(html).toContain('one after the other');
    expect(html.match(/role="log"/g)).toHaveLength(2);
    expect(html).toContain('aria-label="Prompt for both models"');
  });

  it('says that a model has not begun to answer', async () => {
    const [base] = TURN.sides;
    const begun = { ...base, text: 'The', is_final: false };
    const waiting = { ...begun, name: 'tuned', text: '' };
    const turn = { ...TURN, sides: [begun, waiting] };
    const html = await drawn({ ...turn, is_over: false });
    expect(html.match(/Waiting for the engine…/g)).toHaveLength(1);
    expect(html.match(/llmops-chat-caret/g)).toHaveLength(1);
    // It is no part of the answer's text.
    expect(html).toContain('<div class="llmops-chat-text"></div>');
    // Stopped before that: nothing comes any more.
    expect(await drawn(turn)).not.toContain('Waiting for the engine…');
  });

  it('says what to do while there is no conversation', async () => {
    expect(await drawn(null)).toContain('Ask both models');
  });

  it('says how an answer ended', () => {
    const stopped = { ...TURN.sides[0], finish: 'cancelled' };
    expect(facts(stopped)).toContain('stopped');
  });
});

describe('the conversation', () => {
  it('shows a new prompt to a reader who has scrolled up', async () => {
    const model = new ChatModel({
      live: new FakeLive(),
      history: async () => ({ turn: TURN }),
      ask: () => new Promise(() => undefined),
      stop: async () => undefined
    });
    await model.load();
    const height = vi.spyOn(Element.prototype, 'scrollHeight', 'get');
    height.mockReturnValue(900);
    const host = document.createElement('div');
    const root = createRoot(host);
    flushSync(() => root.render(<ChatView model={model} />));
    const scroller = host.querySelector('.llmops-chat-scroll')!;
    scroller.scrollTop = 5;
    void model.ask('And now?');
    await expect.poll(() => scroller.scrollTop, { timeout: 10_000 }).toBe(900);
    root.unmount();
    model.dispose();
    height.mockRestore();
  });
});

describe('canChat', () => {
  it('wants the action and a model among the outputs', () => {
    const state = (actions: string[], what: string): RunState =>
      ({ row: { actions }, panel: { outputs: [{ what }] } }) as never;
    expect(canChat(state(['chat'], 'adapter'))).toBe(true);
    expect(canChat(state(['chat'], 'scores'))).toBe(false);
    expect(canChat(state(['compare'], 'adapter'))).toBe(false);
    expect(canChat(null)).toBe(false);
  });
});
