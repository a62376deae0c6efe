import { ISignal, Signal } from '@lumino/signaling';

import { asTrouble } from '../../api';
import { ILLMOps } from '../../tokens';
import { Comparison, Trouble } from '../../wire';
import { RunModel, RunModels } from '../model';
import * as requests from '../requests';
import { ScoresModel } from './scoresModel';

const REDRAW_MS = 500;
const REFRESH_MS = 15_000;

/**
 * Several runs side by side: their rows as they come, figures and differences now and then.
 */
export class CompareModel {
  constructor(
    private llmops: ILLMOps,
    private models: RunModels,
    readonly runIds: readonly string[],
    private _base?: string
  ) {
    this._runs = runIds.map(runId => models.take(runId));
    this._runs.forEach(run => {
      run.rowsChanged.connect(this.soon, this);
      run.changed.connect(this.onChanged, this);
    });
    this._timer = setInterval(() => this.refreshLive(), REFRESH_MS);
    void this.refresh();
  }

  /** The older first, once that is known. */
  get runs(): readonly RunModel[] {
    const order = this._comparison?.runs.map(row => row.run_id);
    if (!order) {
      return this._runs;
    }
    const found = order.map(id => this._runs.find(run => run.runId === id));
    return found.filter((run): run is RunModel => run !== undefined);
  }

  get comparison(): Comparison | null {
    return this._comparison;
  }

  /** Rows of the two outputs; null for runs whose outputs have no rows. */
  get scores(): ScoresModel | null {
    return this._scores;
  }

  get trouble(): Trouble | null {
    return this._trouble;
  }

  /** At most twice a second, however quick the runs are. */
  get changed(): ISignal<CompareModel, void> {
    return this._changed;
  }

  /** The run that was chosen to compare with; undefined before. */
  get base(): string | undefined {
    return this._base;
  }

  /** Compare the others with this run from now on. */
  async setBase(runId: string): Promise<void> {
    this._base = runId;
    this._changed.emit(); // The choice is shown before its answer comes.
    await this.refresh();
  }

  async refresh(): Promise<void> {
    try {
      const { llmops, runIds, _base: base } = this;
      const comparison = await requests.compare(llmops, runIds, base);
      if (base !== this._base) {
        return; // Another one was chosen meanwhile.
      }
      this._comparison = comparison;
      this._trouble = null;
      this.takeScores(this._comparison);
    } catch (error) {
      this._trouble = asTrouble(error);
    }
    this._changed.emit();
  }

  dispose(): void {
    this._isDisposed = true;
    this._scores?.dispose();
    clearInterval(this._timer);
    clearTimeout(this._redraw);
    this._runs.forEach(run => {
      run.rowsChanged.disconnect(this.soon, this);
      run.changed.disconnect(this.onChanged, this);
      this.models.giveBack(run);
    });
    Signal.clearData(this);
  }

  /** Compared again when a run has ended since; earlier pages may be of fewer rows. */
  private takeScores({ has_rows, runs }: Comparison): void {
    if (!has_rows || this._isDisposed) {
      return;
    }
    this._scores ??= new ScoresModel(
      this.llmops,
      runs.map(row => row.run_id)
    );
    void this._scores.refresh();
  }

  private get numOver(): number {
    return this._runs.filter(run => run.state?.is_over).length;
  }

  private refreshLive(): void {
    if (this.numOver < this._runs.length) {
      void this.refresh();
    }
  }

  private onChanged(): void {
    const over = this.numOver;
    if (over > this._over) {
      this._over = over;
      void this.refresh();
    }
  }

  private soon(): void {
    this._redraw ??= setTimeout(() => {
      this._redraw = undefined;
      this._changed.emit();
    }, REDRAW_MS);
  }

  private _runs: RunModel[];
  private _comparison: Comparison | null = null;
  private _trouble: Trouble | null = null;
  private _scores: ScoresModel | null = null;
  private _isDisposed = false;
  private _over = 0;
  private _timer: ReturnType<typeof setInterval>;
  private _redraw: ReturnType<typeof setTimeout> | undefined;
  private _changed = new Signal<CompareModel, void>(this);
}
