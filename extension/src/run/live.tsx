import { IDisposable } from '@lumino/disposable';
import * as React from 'react';

import { asTrouble } from '../api';
import { RunPanel } from '../panel/panel';
import { IChartSettings } from '../tokens';
import { PanelSamples, ProfileDetail, Trouble } from '../wire';
import { RunModel } from './model';

interface IProps {
  model: RunModel;
  charts: IChartSettings;
  samples: (first: number) => Promise<PanelSamples>;
  tryChange: (overrides: string[]) => void;
  /** Resolve once the run was asked; reject when it refused. */
  profile: (steps: number) => Promise<unknown>;
  restart: () => Promise<unknown>;
  profileOf: (number: number) => Promise<ProfileDetail>;
}

/**
 * The notebook's panel, fed by the live topic.
 */
export function LiveSection(props: IProps): JSX.Element {
  const host = React.useRef<HTMLDivElement>(null);
  React.useEffect(() => {
    if (!host.current) {
      return;
    }
    const panel = new LivePanel(host.current, props);
    return () => panel.dispose();
  }, [props.model]);
  return <div ref={host} className="llmops-runpanel-live" />;
}

/**
 * Feeds a panel with what a run's model gets. The tab's toolbar stops the run, and the tab itself
 * shows when the data may be out of date.
 */
export class LivePanel implements IDisposable {
  constructor(
    host: HTMLElement,
    private props: IProps
  ) {
    const { model, charts, tryChange } = props;
    this._panel = new RunPanel(host, model.rows, {
      charts,
      tryChange,
      profile: steps => this.tried(() => props.profile(steps)),
      restart: () => this.tried(() => props.restart()),
      askForProfile: number =>
        void this.tried(async () => {
          this._panel.show({ profile: await props.profileOf(number) });
        }),
      askForSamples: first =>
        void this.tried(async () => {
          this._panel.show({ samples: await props.samples(first) });
        })
    });
    model.changed.connect(this.onChanged, this);
    model.rowsChanged.connect(this.draw, this);
    charts.changed.connect(this.draw, this);
    this.onChanged();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    const { model, charts } = this.props;
    this._isDisposed = true;
    model.changed.disconnect(this.onChanged, this);
    model.rowsChanged.disconnect(this.draw, this);
    charts.changed.disconnect(this.draw, this);
    this._panel.dispose();
  }

  /** Do it; a refusal stands in the panel until the state of the run has changed. */
  private async tried(work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this._refusal = asTrouble(error);
      this._refusedIn = this.props.model.state?.row?.state;
      this._panel.show({ notice: this._refusal });
    }
  }

  private onChanged(): void {
    const { state } = this.props.model;
    if (state?.row?.state !== this._refusedIn) {
      this._refusal = null; // The state has changed since.
    }
    this._panel.show({ state: state?.panel ?? {}, notice: this._refusal });
  }

  private draw(): void {
    this._panel.draw();
  }

  private _panel: RunPanel;
  private _isDisposed = false;
  private _refusal: Trouble | null = null;
  private _refusedIn: string | undefined;
}
