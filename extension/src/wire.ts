// Written by llmops_kernel/server/wire_ts.py from llmops_kernel/server/wire. Not to edit.

export const PROTOCOL = 1;

/** One mistake of a config. */
export interface FieldProblem {
  /** Dotted path of the field. */
  path: string;
  message: string;
  /** As it was written, in one short line; empty when there is none. */
  value: string;
  suggestion: string;
  /** Of the file it came from, from 1. */
  line: number | null;
}

/** What happened and what to do about it. */
export interface Trouble {
  message: string;
  remedy: string;
  problems: FieldProblem[];
}

/** The answer to the first request of a page. */
export interface Handshake {
  /** Of the server's llmops-kernel. */
  version: string;
  protocol: number;
  /** Where runs lie. */
  home: string;
  /** Jupyter's root folder. */
  root: string;
  dashboard_writable: boolean;
}

/** Something that takes a while: a cluster's start, a submission. */
export interface OperationInfo {
  id: string;
  /** `up`, `submit`, `delete` ... */
  kind: string;
  /** The cluster or run that it is about. */
  what: string;
  state: 'running' | 'done' | 'failed';
  /** Progress, oldest first; the newest twenty. */
  lines: string[];
  started_s: number;
  ended_s: number | null;
  result: Record<string, unknown>;
  trouble: Trouble | null;
}
