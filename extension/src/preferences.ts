import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ISignal, Signal } from '@lumino/signaling';

import { IChartChoice } from './panel/numbers';
import { IChartSettings, IPreferences } from './tokens';

const KEEP_AFTER_MS = 500;

type ISettings = Pick<
  ISettingRegistry.ISettings,
  'composite' | 'changed' | 'set'
>;

export class Preferences implements IPreferences {
  get notifyOnEnd(): 'all' | 'failed' | 'never' {
    const value = this.read<string>('notifyOnEnd', 'all');
    return value === 'failed' || value === 'never' ? value : 'all';
  }

  get defaultCluster(): string {
    return this.read<string>('defaultCluster', '');
  }

  get attachTo(): string {
    return this.read<string>('attachTo', '');
  }

  async attach(name: string): Promise<void> {
    await this._settings?.set('attachTo', name);
  }

  get openRunOnSubmit(): boolean {
    return this.read<boolean>('openRunOnSubmit', true);
  }

  get checkWhileTyping(): boolean {
    return this.read<boolean>('checkWhileTyping', true);
  }

  get refuseTooLarge(): boolean {
    return this.read<boolean>('refuseTooLarge', false);
  }

  get defaultLayout(): unknown {
    return this._settings?.composite.defaultLayout ?? {};
  }

  get charts(): IChartSettings {
    return {
      // Until the settings are kept there, what was chosen meanwhile.
      read: () => this._charts ?? this._settings?.composite.charts ?? {},
      keep: value => this.keepCharts(value),
      changed: this._changed
    };
  }

  /** A slider gives many values a second; a setting is written when it rests. */
  private keepCharts(value: IChartChoice): void {
    this._charts = value;
    clearTimeout(this._keeping);
    this._keeping = setTimeout(() => void this.writeCharts(), KEEP_AFTER_MS);
  }

  /** What is written may be edited in the settings from then on. */
  private async writeCharts(): Promise<void> {
    const written = this._charts;
    try {
      await this._settings?.set('charts', { ...written });
      if (this._settings && this._charts === written) {
        this._charts = null;
      }
    } catch (error) {
      console.error('llmops: charts are not kept', error);
    }
    this._changed.emit();
  }

  get changed(): ISignal<IPreferences, void> {
    return this._changed;
  }

  use(settings: ISettings): void {
    this._settings = settings;
    settings.changed.connect(() => this._changed.emit());
    this._changed.emit();
  }

  private read<T extends string | boolean>(name: string, otherwise: T): T {
    const value = this._settings?.composite[name];
    return typeof value === typeof otherwise ? (value as T) : otherwise;
  }

  private _charts: IChartChoice | null = null;
  private _keeping: ReturnType<typeof setTimeout> | undefined;
  private _settings: ISettings | null = null;
  private _changed = new Signal<IPreferences, void>(this);
}

/**
 * Provides the settings. Its id names `schema/plugin.json`.
 */
export const preferencesPlugin: JupyterFrontEndPlugin<IPreferences> = {
  id: '@llmops/lab:plugin',
  description: 'The settings of the LLM training extension.',
  autoStart: true,
  provides: IPreferences,
  optional: [ISettingRegistry],
  activate: (_: JupyterFrontEnd, registry: ISettingRegistry | null) => {
    const preferences = new Preferences();
    registry
      ?.load(preferencesPlugin.id)
      .then(settings => preferences.use(settings))
      .catch(error => console.error('llmops: settings are not read', error));
    return preferences;
  }
};
