import { Token } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal } from '@lumino/signaling';

import { IChartStore } from './panel/chartTools';
import {
  ClusterRow,
  Handshake,
  LivePayloads,
  OperationInfo,
  RunRow,
  Trouble
} from './wire';

export type Json = Record<string, unknown>;

/**
 * One message of a topic: its kind says what its data are.
 */
export type LiveMessage = {
  [Kind in keyof LivePayloads]: {
    kind: Kind;
    data: LivePayloads[Kind];

    /** What followed the header of a binary message. */
    payload: ArrayBuffer | null;
  };
}[keyof LivePayloads];

/**
 * The one websocket of this tab.
 */
export interface ILive extends IDisposable {
  readonly isConnected: boolean;
  readonly statusChanged: ISignal<ILive, boolean>;

  /**
   * Get a topic's messages until the result is disposed of. After a lost connection or a
   * gap in the numbers the topic starts again; `have` says what need not be sent again.
   */
  subscribe(
    topic: string,
    listener: (message: LiveMessage) => void,
    have?: () => Json
  ): IDisposable;
}

/**
 * Requests to our server extension.
 */
export interface ILLMOps {
  readonly live: ILive;

  /** Rejects with an ApiError when the server has no extension, or one of another version. */
  readonly ready: Promise<Handshake>;

  /**
   * Ask below `<base url>/llmops/`; a body is sent as JSON. Rejects with an ApiError.
   */
  request<T>(path: string, options?: IRequest): Promise<T>;

  /** The same for what is not JSON. */
  fetchBytes(path: string): Promise<ArrayBuffer>;

  /** The address of something below `<base url>/llmops/`, for frames and links. */
  url(path: string): string;
}

export interface IRequest {
  method?: 'GET' | 'POST' | 'PATCH' | 'PUT' | 'DELETE';
  body?: unknown;
  signal?: AbortSignal;
}

export const ILLMOps = new Token<ILLMOps>(
  '@llmops/lab:ILLMOps',
  'Requests and live messages of the llmops server extension.'
);

/**
 * Long operations on the server: starts, submissions.
 */
export interface IOperations extends IFollowed {
  /** Newest first. */
  readonly all: readonly OperationInfo[];
  readonly changed: ISignal<IOperations, void>;

  /**
   * Wait for the end of an operation.
   * Rejects with an ApiError when it failed.
   */
  finished(operation: OperationInfo): Promise<OperationInfo>;
}

export const IOperations = new Token<IOperations>(
  '@llmops/lab:IOperations',
  'Operations that run on the server, with their progress.'
);

/**
 * What every model that follows a topic can say about itself.
 */
export interface IFollowed extends IDisposable {
  /** False until the first answer. */
  readonly isKnown: boolean;

  /** Why what is shown may be old; null while all is well. */
  readonly trouble: Trouble | null;
}

/**
 * All runs of the store, newest first.
 */
export interface IRunsModel extends IFollowed {
  readonly runs: readonly RunRow[];
  readonly changed: ISignal<IRunsModel, void>;

  /** Emitted once when a run ends while this page is open. */
  readonly ended: ISignal<IRunsModel, RunRow>;

  /** Chosen for a comparison. */
  readonly selected: ReadonlySet<string>;

  /** A listed run, or an older one that was read or shown since. */
  find(runId: string): RunRow | undefined;

  /**
   * The run as the server knows it, also where it is older than those that are listed.
   * Rejects with an ApiError when there is no such run.
   */
  read(runId: string): Promise<RunRow>;

  /** Take what a panel was told of a run that may be older than those that are listed. */
  learn(row: RunRow): void;
  select(runId: string, isSelected: boolean): void;
  clearSelection(): void;
}

export const IRunsModel = new Token<IRunsModel>(
  '@llmops/lab:IRunsModel',
  'The runs of the store, kept up to date.'
);

/**
 * Where a pane goes, seen from another pane of the plan or, with null, from the tab in front.
 */
export interface ILayoutPane {
  mode:
    | 'split-top'
    | 'split-left'
    | 'split-right'
    | 'split-bottom'
    | 'tab-before'
    | 'tab-after';
  ref: string | null;
}

/**
 * Panes by name: `run`, `dashboard`, `dashboard-jobs`...
 */
export type ILayoutPlan = Readonly<Record<string, ILayoutPane>>;

/**
 * The user's settings of this extension (`schema/plugin.json`), with their defaults until
 * they are loaded.
 */
export interface IPreferences {
  readonly notifyOnEnd: 'all' | 'failed' | 'never';
  readonly defaultCluster: string;
  /** A cluster's name; empty when new kernels are left alone. */
  readonly attachTo: string;

  /** Sets it for good. */
  attach(name: string): Promise<void>;

  readonly openRunOnSubmit: boolean;
  readonly checkWhileTyping: boolean;
  readonly refuseTooLarge: boolean;
  /** As it is written there, unchecked: a `ILayoutPlan` when it is right. */
  readonly defaultLayout: unknown;
  readonly charts: IChartSettings;
  readonly changed: ISignal<IPreferences, void>;
}

/**
 * What a user has chosen for the charts of all runs.
 */
export interface IChartSettings extends IChartStore {
  /** Emitted when a choice has rested, and when the settings are edited. */
  readonly changed: ISignal<unknown, void>;
}

export const IPreferences = new Token<IPreferences>(
  '@llmops/lab:IPreferences',
  'The settings of the LLM training extension.'
);

/**
 * All clusters that any provider knows, by name.
 */
export interface IClusterModel extends IFollowed {
  readonly clusters: readonly ClusterRow[];

  /** The server's clock minus this browser's, in seconds. */
  readonly aheadS: number;
  readonly changed: ISignal<IClusterModel, void>;

  find(name: string): ClusterRow | undefined;
}

export const IClusterModel = new Token<IClusterModel>(
  '@llmops/lab:IClusterModel',
  'The Ray clusters, kept up to date.'
);
