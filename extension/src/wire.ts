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
  /** Version of llmops-kernel on the server. */
  version: string;
  protocol: number;
  /** Folder of the runs. */
  home: string;
  /** Jupyter's root folder. */
  root: string;
  dashboard_writable: boolean;
}

/** A long-running operation, such as a cluster start or a submission. */
export interface OperationInfo {
  id: string;
  /** `up`, `submit`, `delete` ... */
  kind: string;
  /** Name of the cluster, or id of the run. */
  what: string;
  state: 'running' | 'done' | 'failed';
  /** Progress, oldest first; the newest twenty. */
  lines: string[];
  started_s: number;
  ended_s: number | null;
  result: Record<string, unknown>;
  trouble: Trouble | null;
}

/** One cluster of the list. */
export interface ClusterRow {
  name: string;
  provider: string;
  /** The last known state; null until the provider has answered for the first time. */
  info: ClusterInfo | null;
  /** Why `info` may be out of date; empty when it is current. */
  stale: string;
  /** What to do about that. */
  remedy: string;
  /** Unix time at which `info` was read. */
  checked_s: number | null;
  /** Unix time; null while a job runs, and when it is not known. */
  idle_since_s: number | null;
  /** Id of the operation that is in progress on this cluster. */
  operation_id: string | null;
  /** `up`, `suspend`, `resume`, `scale` or `delete`, while that is in progress. */
  doing: string;
  /** The newest progress line of that operation. */
  progress: string;
}

/** State and figures of a cluster; `None` is unknown, never a guess. */
export interface ClusterInfo {
  name: string;
  provider: string;
  state: 'starting' | 'ready' | 'stopping' | 'dead' | 'stopped';
  /** A readable text: why it is in this state, or what is unusual about it. */
  message: string;
  remedy: string;
  /** True for a stopped cluster of which only the workers are gone: jobs and journals live on. */
  head_runs: boolean;
  dashboard_url: string | null;
  /** The dashboard of its runs in the team's Grafana, if the template names that. */
  runs_url: string | null;
  /** `host:port` of the GCS, as `RAY_ADDRESS` wants it. */
  ray_address: string | null;
  created_s: number | null;
  num_nodes: number | null;
  num_cpus: number | null;
  num_gpus: number | null;
  /** Main memory of the hosts of all nodes. */
  memory_bytes: number | null;
  /** Main memory in use, by any process of these hosts. */
  memory_used_bytes: number | null;
  /** Reserved by running work; Ray refreshes it every 5 s. */
  cpus_used: number | null;
  gpus_used: number | null;
  /** Pending ones too. */
  jobs_running: number | null;
  /** All that Ray remembers since the cluster's start, ended ones too. */
  jobs_total: number | null;
  /** What these are, the newest first, each run with its user: `run lora-1 of ann (running)`. */
  running: string[] | null;
  /**
   * Since the last job ended, or since the cluster was ready when none ran; None while one
   * runs.
   */
  idle_s: number | null;
  /** What its provider can do to it now: empty text, or the reason why not. */
  actions: Record<string, string>;
  ray_version: string | null;
  /** kubeconfig context; None for a local cluster. */
  context: string | null;
  namespace: string | null;
  /** Kueue's LocalQueue. */
  queue: string | null;
  image: string | null;
  /** Folder or bucket for what runs write, which outlives the cluster; None: its nodes' disks. */
  run_storage: string | null;
  /** Worker pods that are ready; None for a local cluster. */
  workers_ready: number | null;
  workers_wanted: number | null;
  /** Worker groups, which `scale` gives other numbers; empty for a local cluster. */
  groups: GroupInfo[];
  /**
   * What Ray's autoscaler can bring it to, by Ray's names: `{"CPU": 24, "GPU": 8}`; None: no
   * autoscaler resizes it.
   */
  most_resources: Record<string, number> | null;
  /** Why it is not in the state that was asked for, the most important reason first. */
  waiting: Waiting[];
  /** Unix time at which the idle guard suspends it if nothing runs until then. */
  suspends_at_s: number | null;
  /** Unix time at which its time to live expires. */
  ends_at_s: number | null;
  /** Unix time until which no idle guard acts on it (`llmops keep`). */
  kept_until_s: number | null;
  /** Created by other tools: kubectl, CI, a pipeline. */
  is_adopted: boolean;
  /** `user@host` of the `llmops up` that created it, as it said itself. */
  created_by: string;
  /** Why this context was chosen, and not the others of its template. */
  chosen: string;
  /**
   * `warm`, `starting`, `off (why)` or `cold: why`: how processes of jobs start; empty when the
   * cluster does not live or cannot be asked.
   */
  warm: string;
  /** Modules that the head's fork server has loaded. */
  warm_modules: number | null;
  /** Modules that it could not load, each with the reason. */
  warm_missing: string[];
  /** Processes forked by the server that runs now. */
  warm_forked: number | null;
  /** Processes that were started cold on the head's node since the cluster's start. */
  warm_cold_starts: number | null;
  /** Why the newest of them was. */
  warm_cold_reason: string;
  /** Loaded models that this machine keeps for later runs, the last used first. */
  warm_kept: KeptInfo[];
  /** Models that score runs and chats have loaded; None: not known. */
  engines: EngineInfo[] | null;
  /** Last lines of the logs of a cluster that died or would not start. */
  log_tail: string;
}

/** One worker group: how many replicas there are and may be, and their pods. */
export interface GroupInfo {
  name: string;
  /** As requested; `scale` and the bounds count these. */
  replicas: number;
  /** Pods of one replica (`numOfHosts` of a RayCluster). */
  hosts: number;
  /** Pods of all replicas. */
  pods: number;
  /** Pods that are ready. */
  ready: number | null;
  min_replicas: number | null;
  max_replicas: number | null;
}

/** One reason why a cluster is not in the state that was asked for. */
export interface Waiting {
  /** One sentence with the numbers: what waits, for what, and why. */
  message: string;
  /** What to do about it. */
  remedy: string;
  /** For machines: `quota`, `capacity`, `image`, `volume`, `operator`, `permission`, ... */
  kind: string;
  /** True when waiting alone will not end it. */
  is_stuck: boolean;
}

/** A loaded model that later runs of this machine map into memory instead of reading it. */
export interface KeptInfo {
  /** As the config names it. */
  model: string;
  /** Of the run's config; `tokenizer` if it is only that, in the fork server's memory. */
  dtype: string;
  /** Of its file; of a tokenizer, an estimate of its memory. */
  num_bytes: number;
  /** Unix time at which a run last used it. */
  used_s: number;
}

/**
 * A model that a score run or a chat has loaded; it stays for the next one for a while.
 *
 * What could not be read is None or empty.
 */
export interface EngineInfo {
  /** Of its actor in Ray. */
  name: string;
  /** Counted from 0. */
  replica: number | null;
  node_id: string;
  /** Folder or hub id. */
  model: string;
  /** `vllm`, `transformers` or the class of an engine of the user's. */
  engine: string;
  state: 'loading' | 'busy' | 'idle' | '';
  /** GPUs that Ray reserves for it; 0: it computes on CPUs, of which Ray reserves none. */
  num_gpus: number | null;
  gpu_ids: string[];
  /** Id of the run that uses it, or used it last. */
  run: string;
  /** Unix time; None while it has work. */
  idle_since_s: number | null;
  /** Unix time at which it ends and frees its memory, unless it is used until then. */
  leaves_at_s: number | null;
}

/** All clusters at one time. */
export interface ClusterList {
  clusters: ClusterRow[];
  /** The server's clock, in Unix time: ages are counted from it. */
  now_s: number;
}

/** What an action would do to a cluster, computed before it is done. */
export interface ActionPreview {
  cluster: string;
  action: 'suspend' | 'resume' | 'scale' | 'delete';
  /** One sentence for people. */
  summary: string;
  /** Running runs, other jobs, nodes and processes. What is unknown is named as unknown. */
  stops: string[];
  /** What is kept. */
  keeps: string[];
  /** True when work or files are lost, or when that cannot be known. */
  needs_confirmation: boolean;
}

/** A cluster template to create a cluster from. */
export interface TemplateInfo {
  /** Name or path to pass to `llmops up`. */
  name: string;
  /** Path in Jupyter's file browser; null for a built-in one and outside its root folder. */
  path: string | null;
  /** The YAML. */
  text: string;
  problems: FieldProblem[];
}

/** The template to start: exactly one of the three fields. */
export interface UpBody {
  /** Name of a template of the list. */
  template?: string | null;
  /** Path of a template file in Jupyter's file browser. */
  path?: string | null;
  /** Text of a template; its `env` is not stored, so a later resume does not have it. */
  yaml?: string | null;
}

/** New sizes; null keeps the current value. */
export interface ScaleBody {
  num_cpus?: number | null;
  num_gpus?: number | null;
  /** Replicas by worker group; groups that are not named keep theirs. */
  workers?: Record<string, number>;
}

/** How long idle guards do not suspend or delete a cluster. */
export interface KeepBody {
  /** Seconds from now; 0 ends it. */
  for_s: number;
}

/** A kind of config file that editors support. */
export interface ConfigKind {
  name: string;
  title: string;
  /** Patterns of the end of a path. */
  globs: string[];
  /** Usual name of a new file. */
  new_file: string;
  /** Whether such a file is submitted as a run. */
  is_run: boolean;
}

/** A complete YAML text. */
export interface ConfigText {
  text: string;
}

/** A text to check. */
export interface CheckBody {
  kind?: string | null;
  path?: string | null;
  text: string;
  /** Also check the files that it names. */
  with_files?: boolean;
  /**
   * Also read, format and tokenise some rows, look up a hub id and try the output's folder, which
   * takes seconds: for training configs.
   */
  closely?: boolean;
  /** Overrides, `section.field=value`. */
  overrides?: string[];
}

/** A cursor position in a text. */
export interface CursorBody {
  kind?: string | null;
  path?: string | null;
  text: string;
  line: number;
  column: number;
}

/** Values of a form. */
export interface RenderBody {
  kind: string;
  data: Record<string, unknown>;
}

/** One problem and its position. */
export interface ConfigDiagnostic {
  line: number;
  column: number;
  end_line: number;
  end_column: number;
  severity: 'error' | 'warning';
  path: string;
  message: string;
  value: string | null;
  suggestion: string;
  /** The override or the other file that the mistake is in; null for the text itself. */
  file: string | null;
}

/** Whether a text is valid, and what it would do. */
export interface ConfigCheck {
  kind: string;
  valid: boolean;
  /** What the config does, one sentence per item; empty while there is a problem. */
  effect: string[];
  /** The config's own name. */
  name: string | null;
  /** The values as written, sections expanded; null if the text is not YAML. */
  values: Record<string, unknown> | null;
  /** What makes it invalid. */
  diagnostics: ConfigDiagnostic[];
  /** What need not stop a run. */
  warnings: ConfigDiagnostic[];
  /** What was tried with `closely`, and what could not be: one sentence per item. */
  checked: string[];
}

/** One completion. */
export interface ConfigCompletion {
  label: string;
  insert: string;
  kind: 'field' | 'value' | 'file';
  detail: string;
  documentation: string;
  /** Columns of the cursor's line. */
  replace_from: number;
  replace_to: number;
}

/** What the key or value under the mouse means. */
export interface ConfigHover {
  line: number;
  column: number;
  end_column: number;
  title: string;
  /** Markdown. */
  text: string;
}

/** A training config whose data is looked at. Nothing is saved or started. */
export interface DataBody {
  kind?: string | null;
  path?: string | null;
  text: string;
  /** Rows of each source that are tokenised. */
  rows?: number;
  /** Whose rows are shown. */
  side?: 'train' | 'eval';
}

/** One row of a config's data, by its number from 1. */
export interface DataRowBody {
  kind?: string | null;
  path?: string | null;
  text: string;
  side?: 'train' | 'eval';
  row: number;
}

/** What the model will see of a config's data. */
export interface ConfigData {
  side: 'train' | 'eval';
  has_eval: boolean;
  facts: DataFact[];
  /** Of which rows the histogram is. */
  lengths: string;
  bins: DataBin[];
  rows: DataRow[];
  took_s: number;
}

/** One finding. */
export interface DataFact {
  label: string;
  text: string;
  /** `warning`: something to look at before a run. */
  level: 'plain' | 'warning';
}

/** A line of the histogram of lengths. */
export interface DataBin {
  label: string;
  /** null: the line is `max_length` itself. */
  rows: number | null;
  /** Longer than `max_length`. */
  is_beyond: boolean;
}

/** One row as the model sees it. */
export interface DataRow {
  /** null where only a part of a large file was read. */
  number: number | null;
  /** What it is, in one line. */
  head: string;
  /** Tokens at its end that are not among `tokens`. */
  hidden: number;
  tokens: DataToken[];
}

/** The text of one token, or of several that make one character. */
export interface DataToken {
  /** With control characters and line ends made visible. */
  text: string;
  ids: number[];
  kind: 'loss' | 'context' | 'cut';
  special: boolean;
}

/** A training config whose memory, speed and cost are planned. Nothing is saved or started. */
export interface PlanBody {
  kind?: string | null;
  path?: string | null;
  text: string;
  /** Name of a cluster template, whose machines are meant. */
  cluster?: string;
}

/** What is expected of a training. */
export interface ConfigPlan {
  device: string;
  /** null: not known. */
  fits: boolean | null;
  facts: DataFact[];
  parts: PlanPart[];
}

/** What a part of the memory of one device is for. */
export interface PlanPart {
  label: string;
  size: string;
  /** Of the whole, 0..1. */
  share: number;
}

/** One run in a list. */
export interface RunRow {
  run_id: string;
  /** `train`, `script` ... */
  kind: string;
  name: string;
  /** The title that a user gave it; empty without one. */
  title: string;
  /**
   * What differs from all other runs of its config: `lr 2e-3 · r 16`; empty for nothing.
   *
   * Where several have the same, the time of submission follows: no two of a config share it.
   */
  differs: string;
  starred: boolean;
  cluster: string;
  created_s: number;
  /** Run of a benchmark or a self-test; lists show it only when asked. */
  hidden: boolean;
  state: 'PENDING' | 'QUEUED' | 'RUNNING' | 'RESTARTING' | 'STOPPING' | 'SUCCEEDED' | 'FAILED' | 'STOPPED';
  attempt: number;
  /** Says what it waits for or why it restarts; empty where the state says all. */
  reason: string;
  /** Why it ended; empty until it has ended. */
  message: string;
  remedy: string;
  progress: RunProgress | null;
  /** Fraction done, 0..1; null while the total is unknown. */
  fraction: number | null;
  eta_s: number | null;
  /** Whether it takes longer still: what is to come was not measured yet. */
  eta_is_least: boolean;
  /** The figures of its kind, the most important first; an unknown one has a dash as text. */
  figures: FigureValue[];
  /** Values of the kind's main curve from the first to the last row, evenly spread. */
  curve: (number | null)[];
  /** Empty for a kind without a curve. */
  curve_label: string;
  /** Actions that are possible now. */
  actions: ('stop' | 'retry' | 'resubmit' | 'compare' | 'delete' | 'chat')[];
  parent: string | null;
  /** Submission id of the newest attempt, for the link to Ray's job page. */
  submission_id: string | null;
}

/** Progress of a run. */
export interface RunProgress {
  done: number;
  total: number | null;
  /** `steps`, `rows` ... */
  unit: string;
}

/** One figure of one run: the number, and the same as text for people. */
export interface FigureValue {
  key: string;
  label: string;
  /** In base units; None for unknown or NaN, which `text` distinguishes. */
  value: number | null;
  text: string;
  unit: 'loss' | 'fraction' | 'per_second' | 'seconds' | 'bytes' | 'count' | 'exponent' | 'money' | 'number';
  better: 'lower' | 'higher' | null;
  hint: string;
  /** Whether lists of runs show it. */
  listed: boolean;
}

/** One run in full, without its curves. */
export interface RunDetail {
  row: RunRow;
  note: string;
  user: string;
  host: string;
  config_path: string | null;
  /** The resolved config: all fields, including defaults. */
  config_yaml: string;
  overrides: Record<string, unknown>;
  versions: Record<string, string>;
  /** `revision (branch, with changes)`; empty outside of git. */
  git: string;
  /** Files of the workspace that were submitted. */
  files: string[];
  attempts: RunAttempt[];
  outputs: RunOutput[];
  checkpoints: RunOutput[];
  folder: string;
  contents_path: string | null;
}

/** One attempt of a run. */
export interface RunAttempt {
  number: number;
  cluster: string;
  submission_id: string;
  submitted_s: number;
  ended_s: number | null;
  /** Final state; null while it is not known. */
  state: 'PENDING' | 'QUEUED' | 'RUNNING' | 'RESTARTING' | 'STOPPING' | 'SUCCEEDED' | 'FAILED' | 'STOPPED' | null;
  message: string;
  resumed_from: string | null;
  /** Null when this machine does not have its log. */
  log_bytes: number | null;
}

/** A result, or a checkpoint. */
export interface RunOutput {
  what: string;
  path: string;
  /** Null when it is not on this machine. */
  size_bytes: number | null;
  /** Path in Jupyter's file browser; null outside its root folder. */
  contents_path: string | null;
}

/** What deleting a run would remove. */
export interface RunPreview {
  run_id: string;
  state: 'PENDING' | 'QUEUED' | 'RUNNING' | 'RESTARTING' | 'STOPPING' | 'SUCCEEDED' | 'FAILED' | 'STOPPED';
  folder: string;
  size_bytes: number;
  num_files: number;
  checkpoints: string[];
  outputs: string[];
  /** Results outside the run folder, which are kept. */
  kept: string[];
  /** Runs that were re-submitted from it, which are kept. */
  children: string[];
}

/** One file of a run's code. */
export interface FileText {
  path: string;
  text: string;
}

/** What to change; fields that are left out keep their values. */
export interface NotesBody {
  title?: string | null;
  starred?: boolean | null;
  note?: string | null;
}

/** A training config by its contents path or as text, and the cluster to run it on. */
export interface SubmitBody {
  cluster?: string;
  path?: string | null;
  /** Used instead of the file; `path` then only determines the folder. */
  text?: string | null;
  /** `section.field=value`. */
  overrides?: string[];
  /** Contents path of the folder that is submitted; default the config's folder. */
  workspace?: string | null;
  /** Refuse a training whose plan does not fit in memory. */
  strict?: boolean;
}

/** Changes to a run's config. */
export interface ResubmitBody {
  cluster?: string | null;
  /** The whole config, edited. */
  text?: string | null;
  overrides?: string[];
}

/** Profile the next steps of a run. */
export interface ProfileBody {
  steps?: number;
}

/** Move a run in the queue of its cluster. */
export interface QueueBody {
  priority?: 'low' | 'normal' | 'high' | null;
  /** The run that it goes before; empty: before all. */
  before?: string | null;
}

/** Which logs a run has. */
export interface LogInfo {
  attempt: number;
  attempts: number[];
  size: number;
}

/** Whole lines; offsets are bytes. */
export interface LogWindow {
  offset: number;
  end: number;
  size: number;
  text: string;
  /** The last line while it has no line end. */
  partial: string;
}

/** What a search found. */
export interface LogMatches {
  matches: LogMatch[];
  /** Offset to continue from; null when the whole log was searched. */
  next: number | null;
}

/** One line that matches. */
export interface LogMatch {
  offset: number;
  /** Offset of the next line. */
  end: number;
  text: string;
}

/** Several runs side by side; their curves come as rows. */
export interface Comparison {
  runs: RunRow[];
  /** The place of the run that the others are compared with. */
  base: number;
  matrix: ComparisonMatrix;
  figures: ComparedFigure[];
  differences: RunDifference[];
  samples: ComparedSample[];
  /** Whether `compare/scores` and `compare/rows` compare the runs' outputs row by row. */
  has_rows: boolean;
}

/** A line a run; before those of one setting their mean. */
export interface ComparisonMatrix {
  fields: MatrixField[];
  figures: string[];
  lines: MatrixLine[];
}

/** Something that differs between the runs: a path of their configs, or `code`. */
export interface MatrixField {
  path: string;
  label: string;
  /** Whether it says little, as the place of the output does. */
  is_minor: boolean;
}

/** A run; or several that differ in nothing but their seeds, whose figures are means. */
export interface MatrixLine {
  /** Places in `Comparison.runs`. */
  runs: number[];
  label: string;
  values: string[];
  cells: MatrixCell[];
  is_base: boolean;
  /** Of a run that has not succeeded: `running, step 40 of 225`. */
  note: string;
}

/** One figure of a run, or its mean over several. */
export interface MatrixCell {
  number: number | null;
  text: string;
  /** From the baseline's; empty for the baseline, a dash where it is not known. */
  change: string;
  is_best: boolean;
}

/** One figure of all compared runs. */
export interface ComparedFigure {
  label: string;
  /** What the model became; how fast, with how much memory and money; the phases of start-up. */
  group: 'result' | 'speed' | 'start';
  texts: string[];
  /** From the baseline's to this one's: `× 1.36` or `+0.0123`; a dash where it is not known. */
  changes: string[];
}

/** What differs from one run to another. */
export interface RunDifference {
  before: string;
  after: string;
  config: Change[];
  code: CodeChange[];
  environment: Change[];
  /** What the first run's verdict has predicted of this change, beside what was measured. */
  prediction: string;
}

/** A value that differs. */
export interface Change {
  path: string;
  before: string;
  after: string;
}

/** A file that differs. */
export interface CodeChange {
  path: string;
  kind: 'added' | 'removed' | 'changed';
  unified_diff: string;
  /** False for data, logs, outputs and the outputs of a notebook. */
  is_code: boolean;
  /** `+3 -1`: lines of the difference; empty where the text is not compared. */
  counts: string;
}

/** A row that several runs answered. */
export interface ComparedSample {
  row: string;
  prompt: string;
  /** Empty for a prompt without one. */
  reference: string;
  /** The newest of each run or null; words are new that the first run's answer lacks. */
  answers: (SampledAnswer | null)[];
}

/** An answer of the model at one step. */
export interface SampledAnswer {
  /** The step. */
  at: string;
  /** Pieces of the text, each with whether the answer before it lacks it. */
  words: [string, boolean][];
  /** Says what is left out; empty for a whole answer. */
  more: string;
}

/** Which runs, in what order, with which columns. */
export interface RunTableQuery {
  /** Such as `method.r > 8 and eval_loss < 0.4`. */
  where?: string;
  /** Column names with commas between them; a minus begins with the largest. */
  sort?: string;
  /** Empty for the usual ones: state, progress, figures and what differs. */
  columns?: string[];
  /** Column names; empty for no groups. */
  group?: string;
  /** Keys of groups whose runs are not shown. */
  closed?: string[];
  /** Also runs of benchmarks and self-tests. */
  hidden?: boolean;
  /** A column; empty for the colours that users gave. */
  colour_by?: string;
  first?: number;
  count?: number;
}

/** A window of the table. */
export interface RunTableAnswer {
  /** Changes when any row has changed. */
  version: number;
  total: number;
  matched: number;
  /** Runs and heads of groups, without the runs of closed groups. */
  num_lines: number;
  first: number;
  lines: RunTableLine[];
  columns: RunTableColumn[];
  /** True while runs are still being read: there may be more. */
  reading: boolean;
}

/** One line: the head of a group, or a run. */
export interface RunTableLine {
  group: RunTableGroup | null;
  run: RunTableRun | null;
}

/** The head of a group. */
export interface RunTableGroup {
  key: string;
  text: string;
  count: number;
  is_closed: boolean;
}

/** One run of the window. */
export interface RunTableRun {
  run_id: string;
  /** Its title, or what differs from all other runs of its config: the same on every screen. */
  label: string;
  /** Its config's name where the store has several and the label does not begin with it. */
  config: string;
  state: 'PENDING' | 'QUEUED' | 'RUNNING' | 'RESTARTING' | 'STOPPING' | 'SUCCEEDED' | 'FAILED' | 'STOPPED';
  has_ended: boolean;
  starred: boolean;
  tags: string[];
  /** The colour that a user gave it; empty without one. */
  colour: string;
  /** Where its value of the column that colours the table is among all, 0..1. */
  tone: number | null;
  /** A text for each column. */
  cells: string[];
}

/** One column. */
export interface RunTableColumn {
  /** What a user writes in a filter. */
  name: string;
  label: string;
  source: 'run' | 'figure' | 'config';
  type: 'text' | 'number' | 'time' | 'yes/no' | 'list';
  better: 'lower' | 'higher' | null;
  /** Whether its values differ between the runs that match. */
  differs: boolean;
}

/** Every column that can be shown, filtered and sorted by. */
export interface RunTableColumns {
  columns: RunTableColumn[];
}

/** Parallel coordinates over the table's columns. */
export interface RunTableRays {
  axes: RunTableAxis[];
  rays: RunTableRay[];
  /** Runs that match but are not drawn because there are too many. */
  left_out: number;
}

/** One axis of the parallel coordinates: a number's range, or the values of a text. */
export interface RunTableAxis {
  name: string;
  label: string;
  low: number | null;
  high: number | null;
  is_log: boolean;
  /** The lowest and the highest as the table writes them. */
  ends: string[];
  /** Of a text, from the top; empty for numbers. */
  values: string[];
}

/** A run as a line over the axes. */
export interface RunTableRay {
  run_id: string;
  label: string;
  tone: number | null;
  /** Where it meets each axis, 0 (bottom) to 1; null where its value is unknown. */
  at: (number | null)[];
}

/** The runs of an action. */
export interface RunIdsBody {
  run_ids: string[];
}

/** Changes of the tags and the colour of runs. */
export interface RunTagsBody {
  run_ids: string[];
  add?: string[];
  remove?: string[];
  /** Null leaves the colour as it is. */
  colour?: '' | 'blue' | 'orange' | 'green' | 'purple' | 'teal' | 'pink' | 'brown' | 'grey' | null;
}

/** The runs that match. */
export interface RunIds {
  run_ids: string[];
}

/** What deleting runs would remove. */
export interface RunLosses {
  num_runs: number;
  /** For people: `1.5 GiB`. */
  size: string;
  num_checkpoints: number;
  num_with_output: number;
  starred: string[];
  /** Cannot be deleted before they are stopped. */
  not_ended: string[];
  missing: string[];
}

/** What differs between the outputs of two scorings, the older run first. */
export interface ScoreComparison {
  /** Run id. */
  before: string;
  after: string;
  metrics: ScoredMetric[];
  /** Metrics that rows have in both: what rows can be ordered by. */
  row_metrics: string[];
  /** The one that better and worse are counted by. */
  metric: string | null;
  counts: RowsOfKind[];
  errors_before: number;
  errors_after: number;
  /** Rows with an output in both. */
  output_rows: number;
  /** Share of them with the same output, 0..1. */
  identical: number | null;
  /** Mean similarity of their outputs, 0..1. */
  similarity: number | null;
  /** Outputs that differ, of which the similarity was computed. */
  sampled: number;
}

/** One metric of both scorings; unknown is null. */
export interface ScoredMetric {
  name: string;
  before: number | null;
  after: number | null;
  delta: number | null;
  /** Ends of the delta's 95 % confidence interval; null for a metric that rows do not have. */
  low: number | null;
  high: number | null;
  /** Rows that have the metric in both; null for a metric of the whole table. */
  rows: number | null;
  better: 'lower' | 'higher' | null;
  num_better: number | null;
  num_worse: number | null;
  num_same: number | null;
  /** Name, both values, delta, interval, rows better and worse, as tables show them. */
  texts: string[];
}

/** How many rows there are of a kind. */
export interface RowsOfKind {
  kind: 'all' | 'better' | 'worse' | 'same' | 'flipped' | 'changed' | 'error' | 'only_before' | 'only_after';
  /** `flipped`, `only in the first` ... */
  label: string;
  rows: number;
}

/** One page of the rows of a kind. */
export interface ScoredRows {
  kind: 'all' | 'better' | 'worse' | 'same' | 'flipped' | 'changed' | 'error' | 'only_before' | 'only_after';
  /** The metric that says what is better or worse. */
  metric: string | null;
  total: number;
  offset: number;
  rows: ScoredRow[];
}

/** One row of both scorings; texts over 20,000 characters are cut. */
export interface ScoredRow {
  key: string;
  prompt: string;
  reference: string | null;
  /** The output; null for a row without one. */
  before: string | null;
  after: string | null;
  before_error: string;
  after_error: string;
  before_metrics: Record<string, number | null>;
  after_metrics: Record<string, number | null>;
  /** Whether a text is longer than what is sent. */
  is_cut: boolean;
}

/** A prompt for the models of a run. */
export interface ChatBody {
  prompt: string;
  /** Id of the turn that this one continues. */
  after?: string;
  system?: string;
  max_tokens?: number;
  temperature?: number;
  only?: '' | 'base' | 'tuned';
  engine?: string;
}

/** Topic `chat/<id>`: one turn of a chat; its id is that of its run. */
export interface ChatTurn {
  id: string;
  /** The training run whose model is asked. */
  run_id: string;
  state: 'PENDING' | 'QUEUED' | 'RUNNING' | 'RESTARTING' | 'STOPPING' | 'SUCCEEDED' | 'FAILED' | 'STOPPED';
  is_over: boolean;
  /** What happens while no model has answered; empty after that. */
  line: string;
  /** Why it failed; empty where an answer has the error. */
  message: string;
  remedy: string;
  warnings: string[];
  sides: ChatSide[];
}

/** One model's side of the conversation. */
export interface ChatSide {
  /** `base` or `tuned`. */
  name: string;
  /** Catalogue name, folder or hub id. */
  model: string;
  /** Up to the prompt of this turn. */
  messages: ChatMessage[];
  /** The answer so far. */
  text: string;
  is_final: boolean;
  /** `stop`, `length`, `error`, `cancelled`; empty until the end. */
  finish: string;
  error: string;
  remedy: string;
  output_tokens: number;
  tokens_per_second: number | null;
  /** From the submission to the first text. */
  first_token_s: number | null;
}

/** One message of the conversation. */
export interface ChatMessage {
  /** `system`, `user`, `assistant`. */
  role: string;
  content: string;
}

/** The newest conversation with a run's model. */
export interface ChatHistory {
  /** Its last turn; null if there was none. */
  turn: ChatTurn | null;
}

/** A request of a page. */
export interface LiveRequest {
  op: 'subscribe' | 'unsubscribe' | 'ping';
  topic?: string;
  /** What the page has received on an earlier connection, so that it is not sent again. */
  have?: Record<string, unknown>;
}

/** Data of a message, by its `kind`. */
export interface LivePayloads {
  clusters: ClusterList;
  operations: OperationsNews;
  runs: RunsNews;
  state: RunState;
  rows: RunRows;
  chat: ChatTurn;
  /** The topic cannot be read now; earlier data may be out of date. */
  trouble: Trouble;
  /** The topic can be read again. */
  fine: Nothing;
  error: LiveError;
  pong: Nothing;
}

/** Topic `operations`. */
export interface OperationsNews {
  /** Those that changed. */
  operations: OperationInfo[];
  /** The list is complete; remove any other operation. */
  whole: boolean;
}

/** Topic `runs`. */
export interface RunsNews {
  /** New and changed ones. */
  runs: RunRow[];
  /** Ids of deleted runs. */
  removed: string[];
  /** The list is complete; remove any other run. */
  whole: boolean;
  /** The list is still being read: a run that is new here has not just ended. */
  reading: boolean;
}

/** Topic `run/<id>`: everything except the rows of its steps. */
export interface RunState {
  /** What the notebook's panel shows. */
  panel: PanelState;
  row: RunRow;
  note: string;
  is_over: boolean;
  attempts: number[];
  /** Bytes; null when the log is not on the server's disk. */
  log_size: number | null;
}

/** Everything that the panel shows but the rows of the charts and the log. */
export interface PanelState {
  run_id: string;
  name: string;
  /** The run's name for people: its title, else its config's name. */
  title: string;
  cluster: string;
  what: string;
  state: 'PENDING' | 'QUEUED' | 'RUNNING' | 'RESTARTING' | 'STOPPING' | 'SUCCEEDED' | 'FAILED' | 'STOPPED';
  /** Says what it waits for or why it restarts; empty where the state says all. */
  state_text: string;
  attempt: number;
  ended: boolean;
  kind: string;
  /** It has ended without any row for the charts. */
  no_steps: boolean;
  message: string;
  remedy: string;
  /** In 0..1. */
  progress: number | null;
  progress_text: string;
  eta_text: string;
  /** Says what it does while there is no curve yet. */
  waiting_text: string;
  figures: PanelFigure[];
  columns: RunColumn[];
  /** Name of the column that is the main curve; empty without one. */
  curve: string;
  waterfall: PanelWaterfall;
  losses: PanelLosses;
  /** Planned parts of a device's memory and the measured peak; empty where one is not known. */
  memory: PanelBar[];
  processes: string;
  /** Step and evaluation loss; null for a kind without evaluations. */
  evals: [number, number][] | null;
  /** The further metrics of the evaluations, without values that are not finite. */
  eval_curves: PanelCurve[];
  /** A row for each evaluation. */
  eval_rows: PanelTable;
  samples: PanelSamples;
  /** Numbers of each member that does a share of the work, such as a replica. */
  members: PanelTable;
  /** Saved when it is stopped: `a checkpoint`. */
  saves: string;
  warnings: PanelWarning[];
  restarts: string[];
  /** The step that each restart resumed from; 0 is the beginning. */
  restart_steps: number[];
  /** First step of those whose loss is not a number, up to the last one. */
  nan_since: number | null;
  /** False where rows were left out, as of a run of very many steps, or in a saved notebook. */
  every_row: boolean;
  /** Two rows, the lowest and the highest numbers, stand for at most so many steps. */
  stride: number;
  failures: PanelFailure[];
  outputs: PanelOutput[];
  trackers: PanelTracker[];
  profiles: PanelProfiles;
  system: PanelSystem;
  stall: PanelStall | null;
}

/** A number at the top. */
export interface PanelFigure {
  label: string;
  /** A dash when unknown. */
  value: string;
  hint: string;
}

/** A number that each row of a run's charts has. */
export interface RunColumn {
  name: string;
  label: string;
  unit: 'loss' | 'fraction' | 'per_second' | 'seconds' | 'bytes' | 'count' | 'exponent' | 'money' | 'number';
}

/** From submit to the first result. */
export interface PanelWaterfall {
  rows: PanelBar[];
  /** Phases after the first result, with their total times. */
  later: string[];
  total: string;
  /** The first result: `first step`, `first rows`. */
  first: string;
}

/** A start-up phase, a loss of FLOPs or a part of memory. */
export interface PanelBar {
  name: string;
  detail: string;
  /** Where it begins, as a fraction of the whole width. */
  left: number;
  width: number;
  /** How long it took, or how much it is. */
  text: string;
  running: boolean;
  interrupted: boolean;
}

/** Where the FLOPs of a training go, from the peak down to the MFU. */
export interface PanelLosses {
  rows: PanelBar[];
  /** Which steps were measured, and what was not. */
  note: string;
  /** What bounds the run and the setting to change, in one line; empty while unknown. */
  verdict: string;
  /** The call that tries it, to be copied; empty without a change. */
  change: string;
  /** The change as overrides, for whoever can submit the run again. */
  overrides: string[];
}

/** A metric of the evaluations as a curve. */
export interface PanelCurve {
  name: string;
  label: string;
  /** Step and value. */
  points: [number, number][];
}

/** A table of texts. */
export interface PanelTable {
  columns: string[];
  rows: string[][];
}

/** Rows with the model's answers: prompt, answer, reference. */
export interface PanelSamples {
  columns: string[];
  rows: string[][];
  /** `after 1,200 rows`, `at step 40`; empty before there are samples. */
  at: string;
  history: PanelSampledRow[];
  /** Place of the first row among all samples of that evaluation. */
  first: number;
  total: number;
}

/** A row that was answered more than once, oldest answer first. */
export interface PanelSampledRow {
  row: string;
  answers: SampledAnswer[];
}

/** A warning of the run. */
export interface PanelWarning {
  message: string;
  remedy: string;
  times: number;
}

/** An exception of the user's code or of a worker. */
export interface PanelFailure {
  error: string;
  message: string;
  remedy: string;
  ranks: string;
  /** `train.py:12`; empty when unknown. */
  where: string;
  traceback: string;
}

/** A file or folder that the run wrote. */
export interface PanelOutput {
  what: string;
  path: string;
  size: string;
}

/** A run of this run in a tracker. */
export interface PanelTracker {
  name: string;
  /** Its page, of http or https; empty where it has none. */
  url: string;
  /** Where it is instead. */
  path: string;
}

/** The profiles of a run, and whether its next steps can be profiled. */
export interface PanelProfiles {
  can: boolean;
  /** What is profiled now, or waits to be, as a sentence; empty for nothing. */
  now: string;
  done: PanelProfile[];
  /** Of the newest. */
  operators: PanelTable;
}

/** Steps that were profiled. */
export interface PanelProfile {
  /** Its place among all profiles of the run. */
  number: number;
  /** `steps 12 to 14`. */
  title: string;
  first: number;
  last: number;
  /** How much slower these steps were. */
  note: string;
  /** Folder of the timelines for Perfetto. */
  path: string;
}

/** What hosts, GPUs and worker processes do; without charts before the first sample. */
export interface PanelSystem {
  x_label: string;
  x: number[];
  charts: PanelSystemChart[];
  workers: PanelTable;
  hosts: PanelTable;
  note: string;
}

/** A measurement of each worker or host, with a unit that is drawn behind its numbers. */
export interface PanelSystemChart {
  key: string;
  title: string;
  unit: string;
  lines: PanelLine[];
}

/** A line of a chart of measurements. */
export interface PanelLine {
  /** Rank or host. */
  label: string;
  /** One for each of `PanelSystem.x`. */
  values: (number | null)[];
}

/** Where the workers stand while no step ends. */
export interface PanelStall {
  message: string;
  groups: PanelTable;
  stacks: string;
}

/** Topic `run/<id>`: rows of steps, 32-bit floats in the payload of the same message. */
export interface RunRows {
  /** What each row consists of; the first column is the x axis. */
  columns: RunColumn[];
  /** Number of the first row in the payload. */
  first: number;
  /** Rows of one generation only grow; with another one all earlier rows are invalid. */
  generation: string;
  /** Number of all rows, including those in the payload. */
  count: number;
}

/** No data. */
export interface Nothing {
}

/** The answer to a request that could not be understood. */
export interface LiveError {
  message: string;
  remedy: string;
}

/** The JSON part of every message that a page gets. */
export interface LiveHeader {
  /** Counts up by one with each message of a connection. */
  seq: number;
  topic: string;
  /** A key of LivePayloads. */
  kind: string;
  data: Record<string, unknown>;
}

/** One profile: what is too much to send with each change of a run. */
export interface ProfileDetail {
  number: number;
  operators: PanelTable;
  /** The tree of calls, callers first. */
  calls: CallTime[];
  /** Where ranks stood; empty where nobody looked. */
  groups: PanelTable;
  stacks: string;
}

/**
 * Calls of one name from one caller: a node of the tree of calls of rank 0.
 *
 * A name is that of a module, of an operator, or of a thread of the process at the top.
 */
export interface CallTime {
  name: string;
  calls: number;
  /** Seconds on the processor, without those of what it calls. */
  self_cpu_s: number;
  /** Seconds of its kernels on the GPU; None on CPUs. */
  self_device_s: number | null;
  /** Place of its caller in the list, which is before it; None for a thread. */
  caller: number | null;
  /** Seconds on the processor with those of what it calls, also of calls that are left out. */
  cpu_s: number;
  device_s: number | null;
}
