import { Dialog } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { asTrouble } from '../api';
import { trans } from '../trans';
import { TroubleBox } from '../ui/parts';
import { ConfigCheck, Trouble } from '../wire';
import { ClusterChoice } from './choice';
import { ClusterSelect } from './chooser';
import { Findings } from './findings';

const CHECK_DELAY_MS = 400;
const EXAMPLE_CHANGE = 'optimizer.learning_rate=1e-4';

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
  /** Called after the dialog has closed, to make a cluster. */
  onNew: () => void;
  action?: string;
}

/** Return the config with these overrides applied, or its mistakes. */
type Check = (overrides: string[], signal: AbortSignal) => Promise<ConfigCheck>;

export interface IConfigQuestion extends IQuestion {
  check: Check;
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
export async function launch<Decision>(
  question: IQuestion,
  body: SubmissionForm<Decision>,
  focusNodeSelector: string
): Promise<Decision | null> {
  const { title, choice, onNew } = question;
  const action = question.action ?? trans.__('Submit');
  const dialog = new Dialog<Decision>({
    title,
    body,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: action })],
    focusNodeSelector
  });
  body.closeDialog = () => dialog.reject();
  const result = await dialog.launch();
  if (body.wantsCluster || (result.button.accept && !choice.name)) {
    onNew();
    return null;
  }
  return result.button.accept ? result.value : null;
}

/**
 * The cluster, the fields of a subclass, and below them what the submission works out to.
 */
export abstract class SubmissionForm<Decision>
  extends ReactWidget
  implements Dialog.IBodyWidget<Decision>
{
  constructor(protected question: IQuestion) {
    super();
    this.addClass('llmops-configs-submit');
  }

  closeDialog: () => void = () => undefined;
  wantsCluster = false;

  abstract getValue(): Decision;

  override dispose(): void {
    clearTimeout(this._timer);
    this._abort?.abort();
    super.dispose();
  }

  protected abstract fields(): JSX.Element;
  protected abstract check(signal: AbortSignal): Promise<ConfigCheck>;

  protected get cluster(): string {
    return this.question.choice.name ?? '';
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    void this.checkNow();
  }

  /** Draw what was changed, and check it soon. */
  protected edited(): void {
    this.update();
    clearTimeout(this._timer);
    this._timer = setTimeout(() => void this.checkNow(), CHECK_DELAY_MS);
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

  private async checkNow(): Promise<void> {
    this._abort?.abort();
    const abort = (this._abort = new AbortController());
    try {
      this.take(abort, await this.check(abort.signal), null);
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

class ConfigForm extends SubmissionForm<IDecision> {
  constructor(protected override question: IConfigQuestion) {
    super(question);
    this._text = (question.overrides ?? []).join('\n');
  }

  override getValue(): IDecision {
    return { cluster: this.cluster, overrides: overridesOf(this._text) };
  }

  protected override check(signal: AbortSignal): Promise<ConfigCheck> {
    return this.question.check(this.getValue().overrides, signal);
  }

  protected override fields(): JSX.Element {
    return (
      <label className="llmops-configs-field">
        <span>{trans.__('Changes for this run only, one per line')}</span>
        <textarea
          rows={3}
          spellCheck={false}
          value={this._text}
          placeholder={EXAMPLE_CHANGE}
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

/** One override a line; empty lines and comments are none. */
export function overridesOf(text: string): string[] {
  return text
    .split('\n')
    .map(line => line.trim())
    .filter(line => line && !line.startsWith('#'));
}

const EXAMPLE_ARGS = '--steps 100 --lr 1e-4';

/**
 * How a script is started, as it was written.
 */
export interface IScriptStart {
  /** A number; empty: once, without workers. */
  workers: string;
  /** As on a command line. */
  args: string;
}

export interface IScriptQuestion extends IQuestion {
  check: Check;
  /** What was given the last time; what is given now is written into it. */
  start: IScriptStart;
}

/**
 * Ask on which cluster, on how many workers and with which arguments a script runs; null
 * when it was cancelled.
 */
export async function askScript(
  question: IScriptQuestion
): Promise<IDecision | null> {
  return launch(question, new ScriptForm(question), 'input[name=args]');
}

/** The overrides of a script config that start it so. */
export function overridesOfStart({ workers, args }: IScriptStart): string[] {
  const [number, line] = [workers.trim(), args.trim()];
  return [
    ...(number ? [`num_workers=${number}`] : []),
    // Quoted: YAML must not read a number or a mapping here.
    ...(line ? [`args=${JSON.stringify(line)}`] : [])
  ];
}

class ScriptForm extends SubmissionForm<IDecision> {
  constructor(protected override question: IScriptQuestion) {
    super(question);
    this._start = question.start;
  }

  override getValue(): IDecision {
    const overrides = overridesOfStart(this._start);
    return { cluster: this.cluster, overrides };
  }

  protected override check(signal: AbortSignal): Promise<ConfigCheck> {
    return this.question.check(this.getValue().overrides, signal);
  }

  protected override fields(): JSX.Element {
    return (
      <>
        <label className="llmops-configs-field">
          <span>{trans.__('Workers; empty: run once, as python does')}</span>
          <input
            name="workers"
            type="number"
            min={1}
            value={this._start.workers}
            onChange={event => this.set({ workers: event.target.value })}
          />
        </label>
        <label className="llmops-configs-field">
          <span>{trans.__('Arguments')}</span>
          <input
            name="args"
            type="text"
            spellCheck={false}
            autoComplete="off"
            value={this._start.args}
            placeholder={EXAMPLE_ARGS}
            onChange={event => this.set({ args: event.target.value })}
          />
        </label>
      </>
    );
  }

  private set(change: Partial<IScriptStart>): void {
    Object.assign(this._start, change);
    this.edited();
  }

  private _start: IScriptStart;
}
