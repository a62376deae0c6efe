import { Dialog } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { asTrouble } from '../api';
import { TroubleBox } from '../ui/parts';
import { ConfigCheck, Trouble } from '../wire';
import { overridesOf } from './cellText';
import { ClusterChoice } from './choice';
import { ClusterSelect } from './chooser';
import { Findings } from './findings';

const CHECK_DELAY_MS = 400;

/**
 * What was decided in the dialog.
 */
export interface IDecision {
  cluster: string;
  /** `section.field=value`, one each. */
  overrides: string[];
}

export interface IQuestion {
  title: string;
  choice: ClusterChoice;
  trans: TranslationBundle;
  /** Return the config with these overrides applied, or its mistakes. */
  check: (overrides: string[], signal: AbortSignal) => Promise<ConfigCheck>;
  /** Called after the dialog has closed, to make a cluster. */
  onNew: () => void;
  /** Overrides to begin with. */
  overrides?: readonly string[];
  action?: string;
}

/**
 * Ask where to submit and what to change for this one run; null when it was cancelled.
 */
export async function askSubmission(
  question: IQuestion
): Promise<IDecision | null> {
  const { title, trans, choice } = question;
  const action = question.action ?? trans.__('Submit');
  const body = new SubmitForm(question);
  const dialog = new Dialog<IDecision>({
    title,
    body,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: action })],
    // So that the first thing one types is an override.
    focusNodeSelector: 'textarea'
  });
  body.closeDialog = () => dialog.reject();
  const result = await dialog.launch();
  if (body.wantsCluster) {
    question.onNew();
    return null;
  }
  if (!result.button.accept || !result.value) {
    return null;
  }
  if (!choice.name) {
    question.onNew();
    return null;
  }
  return result.value;
}

interface IFormState {
  text: string;
  check: ConfigCheck | null;
  trouble: Trouble | null;
}

class SubmitForm extends ReactWidget implements Dialog.IBodyWidget<IDecision> {
  constructor(private question: IQuestion) {
    super();
    this.addClass('llmops-configs-submit');
    const text = (question.overrides ?? []).join('\n');
    this._state = { text, check: null, trouble: null };
    void this.check();
  }

  closeDialog: () => void = () => undefined;
  wantsCluster = false;

  getValue(): IDecision {
    return {
      cluster: this.question.choice.name ?? '',
      overrides: overridesOf(this._state.text)
    };
  }

  override dispose(): void {
    clearTimeout(this._timer);
    this._abort?.abort();
    super.dispose();
  }

  protected override render(): JSX.Element {
    const { choice, trans } = this.question;
    const { text, check, trouble } = this._state;
    const newCluster = () => {
      this.wantsCluster = true;
      this.closeDialog();
    };
    return (
      <div>
        <label className="llmops-configs-field">
          <span>{trans.__('Cluster')}</span>
          <ClusterSelect choice={choice} trans={trans} onNew={newCluster} />
        </label>
        <label className="llmops-configs-field">
          <span>{trans.__('Changes for this run only, one per line')}</span>
          <textarea
            rows={3}
            spellCheck={false}
            value={text}
            placeholder="optimizer.learning_rate=1e-4"
            onChange={event => this.edit(event.target.value)}
            // Return is a new line here, not the dialog's button.
            onKeyDown={event =>
              event.key === 'Enter' && event.stopPropagation()
            }
          />
        </label>
        <div className="llmops-configs-checked" aria-live="polite">
          {trouble && <TroubleBox trouble={trouble} />}
          {!trouble && check && <Findings check={check} trans={trans} />}
        </div>
      </div>
    );
  }

  private edit(text: string): void {
    this._state = { ...this._state, text };
    this.update();
    clearTimeout(this._timer);
    this._timer = setTimeout(() => void this.check(), CHECK_DELAY_MS);
  }

  private async check(): Promise<void> {
    this._abort?.abort();
    const abort = (this._abort = new AbortController());
    const overrides = overridesOf(this._state.text);
    try {
      const check = await this.question.check(overrides, abort.signal);
      this.take(abort, { check, trouble: null });
    } catch (error) {
      this.take(abort, { check: null, trouble: asTrouble(error) });
    }
  }

  private take(asked: AbortController, found: Partial<IFormState>): void {
    if (!asked.signal.aborted && !this.isDisposed) {
      this._state = { ...this._state, ...found };
      this.update();
    }
  }

  private _state: IFormState;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _abort: AbortController | null = null;
}
