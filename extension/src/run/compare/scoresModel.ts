import { ISignal, Signal } from '@lumino/signaling';

import { asTrouble } from '../../api';
import { ILLMOps } from '../../tokens';
import { ScoreComparison, ScoredRows, Trouble } from '../../wire';
import * as requests from '../requests';

export type RowsKind = ScoredRows['kind'];

/** What is shown first: the most interesting kind that has rows. */
const FIRST: readonly RowsKind[] = ['flipped', 'worse', 'better', 'changed'];
export const PAGE_ROWS = 20;

/** Which rows are shown. */
interface IRowsChoice {
  kind: RowsKind;
  /** By which better and worse are counted; null for the usual one. */
  metric: string | null;
  offset: number;
}

/**
 * The outputs of two runs, row by row: metrics, and one page of the rows of a kind.
 */
export class ScoresModel {
  constructor(
    private llmops: ILLMOps,
    readonly runIds: readonly string[]
  ) {}

  get comparison(): ScoreComparison | null {
    return this._comparison;
  }

  get page(): ScoredRows | null {
    return this._page;
  }

  get choice(): IRowsChoice | null {
    return this._choice;
  }

  get isLoading(): boolean {
    return this._isLoading;
  }

  get trouble(): Trouble | null {
    return this._trouble;
  }

  get changed(): ISignal<ScoresModel, void> {
    return this._changed;
  }

  async refresh(): Promise<void> {
    await this.load(async isNewest => {
      const { llmops, runIds } = this;
      const comparison = await requests.compareScores(llmops, runIds);
      if (isNewest()) {
        this._comparison = comparison;
        this._choice ??= { kind: first(comparison), metric: null, offset: 0 };
      }
    });
    if (this._comparison && !this._trouble) {
      await this.show({});
    }
  }

  /** Other rows; another kind or metric begins with its first one. */
  async show(change: Partial<IRowsChoice>): Promise<void> {
    const now = this._choice ?? { kind: 'all', metric: null, offset: 0 };
    const choice = { ...now, ...change };
    if (choice.kind !== now.kind || choice.metric !== now.metric) {
      choice.offset = 0;
    }
    this._choice = choice;
    await this.load(async isNewest => {
      const { llmops, runIds } = this;
      const page = await requests.scoredRows(llmops, runIds, {
        ...choice,
        limit: PAGE_ROWS
      });
      if (isNewest()) {
        this._page = page;
      }
    });
  }

  dispose(): void {
    this._newest += 1;
    Signal.clearData(this);
  }

  /** Only the newest request counts: answers may come in another order. */
  private async load(
    work: (isNewest: () => boolean) => Promise<void>
  ): Promise<void> {
    const number = ++this._newest;
    const isNewest = () => number === this._newest;
    this._isLoading = true;
    this._changed.emit();
    try {
      await work(isNewest);
      if (isNewest()) {
        this._trouble = null;
      }
    } catch (error) {
      if (isNewest()) {
        this._trouble = asTrouble(error);
      }
    }
    if (isNewest()) {
      this._isLoading = false;
      this._changed.emit();
    }
  }

  private _comparison: ScoreComparison | null = null;
  private _page: ScoredRows | null = null;
  private _choice: IRowsChoice | null = null;
  private _trouble: Trouble | null = null;
  private _isLoading = false;
  private _newest = 0;
  private _changed = new Signal<ScoresModel, void>(this);
}

function first({ counts }: ScoreComparison): RowsKind {
  const has = (kind: RowsKind) =>
    counts.some(one => one.kind === kind && one.rows > 0);
  return FIRST.find(has) ?? 'all';
}
