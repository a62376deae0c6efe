import { Notification } from '@jupyterlab/apputils';

import { knownFigures, nameWithId } from '../runs/model';
import { trans } from '../trans';
import { RunRow } from '../wire';

const MAX_LENGTH = 400;
/** How long the notification of runs that did not fail stays. */
export const SHOWN_MS = 8000;
const BELL_ONLY = 0;

/**
 * What Lab's notifications can do, as far as it is used here.
 */
export interface INotices {
  notify(
    message: string,
    type: Notification.TypeOptions,
    options: Notification.IOptions<never>
  ): string;
  update(args: {
    id: string;
    message: string;
    type?: Notification.TypeOptions;
    autoClose?: number | false;
    actions?: Notification.IAction[];
  }): boolean;
  dismiss(id: string): void;
}

/**
 * Return what a notification says: how the run ended, why, and what to do.
 */
export function endText(run: RunRow): string {
  const shown = nameWithId(run);
  if (run.state === 'SUCCEEDED') {
    const [figure] = knownFigures(run, { listed: true });
    return figure
      ? trans.__('Run %1 succeeded: %2', shown, figure)
      : trans.__('Run %1 succeeded', shown);
  }
  const what =
    run.state === 'FAILED'
      ? trans.__('Run %1 failed', shown)
      : trans.__('Run %1 was stopped', shown);
  return withReason(what, run);
}

function withReason(what: string, run: RunRow): string {
  const why = run.message ? `${what}: ${run.message}` : what;
  const text = run.remedy ? `${why}\n${trans.__('Try:')} ${run.remedy}` : why;
  return text.length > MAX_LENGTH ? `${text.slice(0, MAX_LENGTH - 1)}…` : text;
}

/** `3 runs ended: 2 succeeded, 1 was stopped`. */
function groupText(runs: readonly RunRow[]): string {
  const count = (state: string) =>
    runs.filter(run => run.state === state).length;
  const parts = [
    count('SUCCEEDED') && trans.__('%1 succeeded', count('SUCCEEDED')),
    count('STOPPED') && trans.__('%1 stopped', count('STOPPED'))
  ];
  return `${trans.__('%1 runs ended', runs.length)}: ${parts.filter(Boolean).join(', ')}`;
}

interface IGroup {
  id: string;
  runs: RunRow[];
}

/**
 * One notification for the runs that end within a few seconds, which goes away; one entry in the
 * bell for the runs that fail for the same reason, which stays until it is read.
 */
export class EndNotices {
  constructor(
    private notices: INotices,
    private open: (run: RunRow | null) => void
  ) {}

  add(run: RunRow): void {
    if (run.state === 'FAILED') {
      this.addFailure(run);
    } else {
      this.addEnd(run);
    }
  }

  dispose(): void {
    clearTimeout(this._timer);
  }

  private addFailure(run: RunRow): void {
    const known = this._failures.get(run.message);
    const group = this.put(known, run, 'error', BELL_ONLY, runs =>
      runs.length === 1
        ? endText(run)
        : withReason(trans.__('%1 runs failed', runs.length), run)
    );
    this._failures.set(run.message, group);
  }

  private addEnd(run: RunRow): void {
    // A success may follow a stop: the colour is that of the newest.
    const type = run.state === 'SUCCEEDED' ? 'success' : 'info';
    this._ends = this.put(this._ends, run, type, SHOWN_MS, runs =>
      runs.length === 1 ? endText(run) : groupText(runs)
    );
    clearTimeout(this._timer);
    this._timer = setTimeout(() => {
      // Else it would stay in the bell.
      this.notices.dismiss(this._ends?.id ?? '');
      this._ends = undefined;
    }, SHOWN_MS);
  }

  /** Add a run to a group that is still there, or begin another one. */
  private put(
    known: IGroup | undefined,
    run: RunRow,
    type: Notification.TypeOptions,
    autoClose: number,
    text: (runs: readonly RunRow[]) => string
  ): IGroup {
    const others = (known?.runs ?? []).filter(one => one.run_id !== run.run_id);
    const runs = [...others, run];
    const actions = [this.action(runs)];
    const message = text(runs);
    if (
      known &&
      this.notices.update({ id: known.id, message, type, autoClose, actions })
    ) {
      return { id: known.id, runs };
    }
    const options = { autoClose, actions: [this.action([run])] };
    return {
      id: this.notices.notify(text([run]), type, options),
      runs: [run]
    };
  }

  private action(runs: readonly RunRow[]): Notification.IAction {
    const [only] = runs;
    return runs.length === 1
      ? { label: trans.__('Open run'), callback: () => this.open(only) }
      : { label: trans.__('Show runs'), callback: () => this.open(null) };
  }

  private _failures = new Map<string, IGroup>();
  private _ends: IGroup | undefined;
  private _timer: ReturnType<typeof setTimeout> | undefined;
}
