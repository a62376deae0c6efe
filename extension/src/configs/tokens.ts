import { Token } from '@lumino/coreutils';

import { ClusterChoice } from './choice';
import { Kinds } from './kinds';
import {
  IConfigQuestion,
  IDecision,
  IQuestion,
  IScriptQuestion
} from './submit';
import { Submitter } from './submitter';

/** A question, without what is the same for all of them. */
type Asked<Question extends IQuestion> = Omit<Question, 'choice' | 'onNew'>;

/**
 * What all doors to a submission share: editors, context menus, cells, a run's panel.
 */
export interface ISubmissions {
  readonly kinds: Kinds;
  readonly choice: ClusterChoice;
  readonly submitter: Submitter;

  /**
   * Ask where to submit and what to change; null when it was cancelled.
   */
  ask(question: Asked<IConfigQuestion>): Promise<IDecision | null>;

  /**
   * Ask where and how a script runs, beginning with `start`, which keeps what was given.
   */
  askScript(question: Asked<IScriptQuestion>): Promise<IDecision | null>;
}

export const ISubmissions = new Token<ISubmissions>(
  '@llmops/lab:ISubmissions',
  'Submits configs, after asking for the cluster and for changes.'
);
