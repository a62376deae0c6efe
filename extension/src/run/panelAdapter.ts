import { asTrouble } from '../api';
import { IPanelModel, PanelCallback } from '../panelModule';
import { nameOf } from '../runs/names';
import { IChartSettings, Json } from '../tokens';
import { PanelSamples, Trouble } from '../wire';
import { RunModel } from './model';

/**
 * Speaks to the notebook panel as its widget model would.
 */
export class PanelAdapter implements IPanelModel {
  constructor(
    private model: RunModel,
    private charts: IChartSettings,
    private samples: (first: number) => Promise<PanelSamples>
  ) {
    model.changed.connect(this.onChanged, this);
    model.rowsChanged.connect(this.onRows, this);
    charts.changed.connect(this.onCharts, this);
  }

  get(name: string): unknown {
    switch (name) {
      case 'state':
        return {
          ...this.model.state?.panel,
          title: this.title
        };
      case 'columns':
        return this.model.rows.view();
      case 'chart_settings':
        return this.charts.read();
      case 'can_page':
      case 'stops_elsewhere': // The tab's toolbar stops the run.
        return true;
      case 'notice':
        // The tab shows when the data may be out of date.
        return this._refusal ?? {};
      default:
        return '';
    }
  }

  on(event: string, callback: PanelCallback): void {
    const known = this._callbacks.get(event) ?? new Set();
    this._callbacks.set(event, known.add(callback));
  }

  off(event: string, callback: PanelCallback): void {
    this._callbacks.get(event)?.delete(callback);
  }

  send(content: Json): void {
    if (content.kind === 'resync') {
      this.onRows(this.model, 0);
    } else if (content.kind === 'samples') {
      void this.askForSamples(content.first as number);
    } else if (content.kind === 'chart_settings') {
      this.charts.keep(content.value as Json);
    }
  }

  dispose(): void {
    this.model.changed.disconnect(this.onChanged, this);
    this.model.rowsChanged.disconnect(this.onRows, this);
    this.charts.changed.disconnect(this.onCharts, this);
    this._callbacks.clear();
  }

  private async askForSamples(first: number): Promise<void> {
    try {
      const page = await this.samples(first);
      this.fire('msg:custom', { kind: 'samples', page });
    } catch (error) {
      this._refusal = asTrouble(error);
      this._refusedIn = this.model.state?.row?.state;
      this.fire('change:notice');
    }
  }

  private onChanged(): void {
    if (this.model.state?.row?.state !== this._refusedIn) {
      this._refusal = null; // The state has changed since.
    }
    this.fire('change:state');
    this.fire('change:notice');
  }

  private get title(): string {
    const row = this.model.state?.row;
    return row ? nameOf(row) : '';
  }

  private onCharts(): void {
    this.fire('change:chart_settings');
  }

  private onRows(_: RunModel, first: number): void {
    const rows = this.model.rows.view(first);
    this.fire('msg:custom', { kind: 'rows', first }, [rows]);
  }

  private fire(event: string, content?: Json, buffers?: DataView[]): void {
    this._callbacks.get(event)?.forEach(call => call(content, buffers));
  }

  private _callbacks = new Map<string, Set<PanelCallback>>();
  private _refusal: Trouble | null = null;
  private _refusedIn: string | undefined;
}
