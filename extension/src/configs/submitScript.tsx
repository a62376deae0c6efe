import * as React from 'react';

import { trans } from '../trans';
import { IDecision, IQuestion, launch, SubmissionForm } from './submit';

const EXAMPLE = '--steps 100 --lr 1e-4';

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

class ScriptForm extends SubmissionForm {
  constructor(question: IScriptQuestion) {
    super(question);
    this._start = question.start;
  }

  protected override overrides(): string[] {
    return overridesOfStart(this._start);
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
            placeholder={EXAMPLE}
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
