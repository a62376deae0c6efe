import { Token } from '@lumino/coreutils';

import { ConfigCheck } from '../wire';
import { ClusterChoice } from './choice';
import { Kinds } from './kinds';
import { IDecision } from './submit';
import { IScriptStart } from './submitScript';
import { Submitter } from './submitter';

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
  ask(question: {
    title: string;
    check: (overrides: string[], signal: AbortSignal) => Promise<ConfigCheck>;
    overrides?: readonly string[];
    action?: string;
  }): Promise<IDecision | null>;

  /**
   * Ask where and how a script runs, beginning with `start`, which keeps what was given.
   */
  askScript(question: {
    title: string;
    check: (overrides: string[], signal: AbortSignal) => Promise<ConfigCheck>;
    start: IScriptStart;
  }): Promise<IDecision | null>;
}

export const ISubmissions = new Token<ISubmissions>(
  '@llmops/lab:ISubmissions',
  'Submits configs, after asking for the cluster and for changes.'
);
