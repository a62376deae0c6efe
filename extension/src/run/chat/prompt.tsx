import * as React from 'react';

import { trans } from '../../trans';
import { useChanges } from '../../ui/hooks';
import { ChatModel, ChatSettings } from './model';

/**
 * Enter sends, Shift+Enter begins a new line, Escape stops the answers.
 */
export function PromptBox(props: { model: ChatModel }): JSX.Element {
  const { model } = props;
  useChanges(model);
  const [text, setText] = React.useState('');
  const send = async () => {
    if (model.isBusy || !text.trim()) {
      return;
    }
    setText('');
    if (!(await model.ask(text))) {
      setText(now => now || text);
    }
  };
  const onKeyDown = (event: React.KeyboardEvent) => {
    if (event.key === 'Escape' && model.isBusy) {
      event.preventDefault();
      void model.stop();
    } else if (
      event.key === 'Enter' &&
      !event.shiftKey &&
      !event.nativeEvent.isComposing
    ) {
      event.preventDefault();
      void send();
    }
    event.stopPropagation();
  };
  return (
    <form
      className="llmops-chat-box"
      onSubmit={event => {
        event.preventDefault();
        void send();
      }}
    >
      <Settings model={model} />
      <div className="llmops-chat-send">
        <textarea
          className="jp-mod-styled"
          rows={3}
          value={text}
          aria-label={trans.__('Prompt for both models')}
          placeholder={trans.__(
            'Enter sends, Shift+Enter begins a new line, Escape stops the answers'
          )}
          onChange={event => setText(event.target.value)}
          onKeyDown={onKeyDown}
        />
        {model.isBusy ? (
          <button
            type="button"
            className="jp-mod-styled jp-mod-warn"
            onClick={() => void model.stop()}
          >
            {trans.__('Stop')}
          </button>
        ) : (
          <button
            type="submit"
            className="jp-mod-styled jp-mod-accept"
            disabled={!text.trim()}
          >
            {trans.__('Send')}
          </button>
        )}
        <button
          type="button"
          className="jp-mod-styled"
          disabled={model.isBusy || !model.turn}
          onClick={() => model.reset()}
        >
          {trans.__('New conversation')}
        </button>
      </div>
    </form>
  );
}

function Settings(props: { model: ChatModel }): JSX.Element {
  const { model } = props;
  const [settings, setSettings] = React.useState(model.settings);
  const change = (changed: Partial<ChatSettings>) => {
    model.settings = { ...model.settings, ...changed };
    setSettings(model.settings);
  };
  return (
    <details className="llmops-chat-settings">
      <summary>{trans.__('Settings')}</summary>
      <label>
        {trans.__('Ask')}
        <select
          value={settings.only}
          onChange={event =>
            change({ only: event.target.value as ChatSettings['only'] })
          }
        >
          <option value="">{trans.__('both models')}</option>
          <option value="base">{trans.__('the base model')}</option>
          <option value="tuned">{trans.__('the fine-tuned model')}</option>
        </select>
      </label>
      <label>
        {trans.__('Longest answer, tokens')}
        <input
          type="number"
          min={1}
          value={settings.max_tokens}
          onChange={event =>
            change({ max_tokens: Math.max(1, +event.target.value || 1) })
          }
        />
      </label>
      <label>
        {trans.__('Temperature')}
        <input
          type="number"
          min={0}
          step={0.1}
          value={settings.temperature}
          onChange={event =>
            change({ temperature: Math.max(0, +event.target.value || 0) })
          }
        />
      </label>
      <label className="llmops-chat-system">
        {trans.__('Instructions (for a new conversation)')}
        <input
          type="text"
          value={settings.system}
          onChange={event => change({ system: event.target.value })}
        />
      </label>
    </details>
  );
}
