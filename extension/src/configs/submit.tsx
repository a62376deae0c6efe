import { Dialog } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { asTrouble } from '../api';
import { trans } from '../trans';
import { TroubleBox } from '../ui/parts';
import { ConfigCheck, Trouble } from '../wire';
import { overridesOf } from './cellText';
import { ClusterChoice } from './choice';
import { ClusterSelect } from './chooser';
import { Findings } from './findings';

const CHECK_DELAY_MS = 400;
const EXAMPLE = 'optimizer.learning_rate=1e-4';

/**
 * What was decided in the dialog.
 */
export interface IDecision {
  cluster: string;
  /** `section.field=value`, one each. */
  overrides: string[];
}

/** What every dialog of a submission needs. */
export interface IQuestion {
  title: string;
  choice: ClusterChoice;
  /** Return the config with these overrides applied, or its mistakes. */
  check: (overrides: string[], signal: AbortSignal) => Promise<ConfigCheck>;
  /** Called after the dialog has closed, to make a cluster. */
  onNew: () => void;
  action?: string;
}

export interface IConfigQuestion extends IQuestion {
  /** Overrides to begin with. */
  overrides?: readonly string[];
}

/**
 * Ask where to submit and what to change for this one run; null when it was cancelled.
 */
export async function askSubmission(
  question: IConfigQuestion
): Promise<IDecision | null> {
  return launch(question, new ConfigForm(question), 'textarea');
}

/**
 * Show a submission's dialog, the focus on what is usually typed; null when it was cancelled
 * or when a cluster has to be made first.
 */
export async function launch(
  question: IQuestion,
  body: SubmissionForm,
  focusNodeSelector: string
): Promise<IDecision | null> {
  const { title, choice, onNew } = question;
  const action = question.action ?? trans.__('Submit');
  const dialog = new Dialog<IDecision>({
    title,
    body,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: action })],
    focusNodeSelector
  });
  body.closeDialog = () => dialog.reject();
  const result = await dialog.launch();
  if (body.wantsCluster) {
    onNew();
    return null;
  }
  if (!result.button.accept || !result.value) {
    return null;
  }
  if (!choice.name) {
    onNew();
    return null;
  }
  return result.value;
}

/**
 * The cluster, the fields of a subclass, and below them what the submission works out to.
 */
export abstract class SubmissionForm
  extends ReactWidget
  implements Dialog.IBodyWidget<IDecision>
{
  constructor(protected question: IQuestion) {
    super();
    this.addClass('llmops-configs-submit');
  }

  closeDialog: () => void = () => undefined;
  wantsCluster = false;

  getValue(): IDecision {
    const cluster = this.question.choice.name ?? '';
    return { cluster, overrides: this.overrides() };
  }

  override dispose(): void {
    clearTimeout(this._timer);
    this._abort?.abort();
    super.dispose();
  }

  protected abstract overrides(): string[];
  protected abstract fields(): JSX.Element;

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    void this.check();
  }

  /** Draw what was changed, and check it soon. */
  protected edited(): void {
    this.update();
    clearTimeout(this._timer);
    this._timer = setTimeout(() => void this.check(), CHECK_DELAY_MS);
  }

  protected override render(): JSX.Element {
    const { choice } = this.question;
    const newCluster = () => {
      this.wantsCluster = true;
      this.closeDialog();
    };
    return (
      <div>
        <label className="llmops-configs-field">
          <span>{trans.__('Cluster')}</span>
          <ClusterSelect choice={choice} onNew={newCluster} />
        </label>
        {this.fields()}
        <div className="llmops-configs-checked" aria-live="polite">
          {this._trouble && <TroubleBox trouble={this._trouble} />}
          {!this._trouble && this._check && <Findings check={this._check} />}
        </div>
      </div>
    );
  }

  private async check(): Promise<void> {
    this._abort?.abort();
    const abort = (this._abort = new AbortController());
    try {
      const check = await this.question.check(this.overrides(), abort.signal);
      this.take(abort, check, null);
    } catch (error) {
      this.take(abort, null, asTrouble(error));
    }
  }

  private take(
    asked: AbortController,
    check: ConfigCheck | null,
    trouble: Trouble | null
  ): void {
    if (!asked.signal.aborted && !this.isDisposed) {
      this._check = check;
      this._trouble = trouble;
      this.update();
    }
  }

  private _check: ConfigCheck | null = null;
  private _trouble: Trouble | null = null;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _abort: AbortController | null = null;
}

class ConfigForm extends SubmissionForm {
  constructor(question: IConfigQuestion) {
    super(question);
    this._text = (question.overrides ?? []).join('\n');
  }

  protected override overrides(): string[] {
    return overridesOf(this._text);
  }

  protected override fields(): JSX.Element {
    return (
      <label className="llmops-configs-field">
        <span>{trans.__('Changes for this run only, one per line')}</span>
        <textarea
          rows={3}
          spellCheck={false}
          value={this._text}
          placeholder={EXAMPLE}
          onChange={event => {
            this._text = event.target.value;
            this.edited();
          }}
          // Return is a new line here, not the dialog's button.
          onKeyDown={event => event.key === 'Enter' && event.stopPropagation()}
        />
      </label>
    );
  }

  private _text: string;
}
