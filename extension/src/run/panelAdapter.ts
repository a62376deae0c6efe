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
    private stop: () => Promise<void>,
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
          title: this.title,
          stop_asked: this._stopAsked,
          stop_refused: this._stopRefused
        };
      case 'columns':
        return this.model.rows.view();
      case 'chart_settings':
        return this.charts.read();
      case 'can_page':
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
    } else if (content.kind === 'stop') {
      void this.askForStop();
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

  private async askForStop(): Promise<void> {
    this._stopAsked = true;
    this._refusal = null;
    this.onChanged();
    try {
      await this.stop();
    } catch (error) {
      this._refusal = asTrouble(error);
      this._refusedIn = this.model.state?.row?.state;
      this._stopRefused += 1;
    }
    // From here on the run's own state says that it is stopping.
    this._stopAsked = false;
    this.onChanged();
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
  private _stopAsked = false;
  private _stopRefused = 0;
  private _refusal: Trouble | null = null;
  private _refusedIn: string | undefined;
}
