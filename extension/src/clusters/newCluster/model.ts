import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { asTrouble } from '../../api';
import { ConfigCheck, TemplateInfo, Trouble, UpBody } from '../../wire';
import { ISchema, Values, withValue } from './schema';

const TYPING_MS = 300;
const USUAL = 'local';

/** What the form needs of the server. */
export interface IFormRequests {
  templates(): Promise<TemplateInfo[]>;
  schema(provider: string): Promise<ISchema>;
  check(text: string): Promise<ConfigCheck>;
  render(data: Values): Promise<string>;
}

/**
 * A cluster template: fields make its YAML, which is what is started. A text that was edited
 * by hand is the user's own: fields write no more, until it is discarded.
 */
export class NewClusterModel implements IDisposable {
  constructor(
    private requests: IFormRequests,
    private drafts: Drafts = new Drafts()
  ) {}

  templates: readonly TemplateInfo[] = [];
  schema: ISchema | null = null;
  template: TemplateInfo | null = null;
  text = '';

  /** The YAML was edited, here or in an earlier draft: it alone counts. */
  isOwnText = false;

  /** What is written in the text; null while it is not read, or cannot be. */
  values: Values | null = null;
  check: ConfigCheck | null = null;

  /** Why the server's answer is missing. */
  trouble: Trouble | null = null;

  get changed(): ISignal<NewClusterModel, void> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  /** True while the text, or the check, is behind what was typed. */
  get isBusy(): boolean {
    return this._waiting > 0 || this._timer !== undefined;
  }

  get canStart(): boolean {
    return !this.isBusy && this.check?.valid === true && !this.trouble;
  }

  /** What the server is to start: the file itself where nothing was changed. */
  get start(): UpBody {
    const { template, text } = this;
    if (!template || template.text !== text) {
      return { yaml: text };
    }
    return template.path === null
      ? { template: template.name }
      : { path: template.path };
  }

  /**
   * Variables of a text that lies in no file cannot be read again for a resume; on Kubernetes
   * the whole template is kept with the cluster.
   */
  get losesEnv(): boolean {
    const env = this.values?.env;
    return (
      (this.values?.provider ?? USUAL) === USUAL &&
      'yaml' in this.start &&
      typeof env === 'object' &&
      env !== null &&
      Object.keys(env).length > 0
    );
  }

  dispose(): void {
    this._disposed = true;
    clearTimeout(this._timer);
    Signal.clearData(this);
  }

  async load(preferred = ''): Promise<void> {
    await this.ask(async () => {
      const { requests } = this;
      const [templates, schema] = await Promise.all([
        requests.templates(),
        requests.schema(USUAL)
      ]);
      this.templates = templates;
      this.schema = schema;
      this._provider = USUAL;
    });
    const first = this.templates.find(
      template => template.path === preferred || template.name === preferred
    );
    const chosen = first ?? this.templates[0];
    if (chosen) {
      await this.choose(chosen);
    }
  }

  /** True while the text is not that of the template as it is saved. */
  get isChanged(): boolean {
    return this.template !== null && this.text !== this.template.text;
  }

  /** Show a template as it was left; what was typed over another one is kept. */
  async choose(template: TemplateInfo): Promise<void> {
    await this.settle();
    await this.show(template, this.drafts.of(template));
  }

  /** Forget what was typed over the template. */
  async discard(): Promise<void> {
    clearTimeout(this._timer);
    this._timer = undefined;
    if (this.template) {
      this.started(this.template);
      await this.show(this.template);
    }
  }

  /** What was typed over it is of use no more. */
  started(template: TemplateInfo): void {
    this.drafts.keep(template, { text: template.text, isOwn: false });
  }

  /** The YAML was edited. */
  setText(text: string): void {
    if (text === this.text) {
      return;
    }
    this.text = text;
    this.isOwnText = true;
    this.remember();
    this._version += 1;
    this.later(() => this.look());
  }

  /** A field was edited; `undefined` takes it out. */
  setValue(path: readonly string[], value: unknown): void {
    if (this.values === null || this.isOwnText) {
      return;
    }
    this.values = withValue(this.values, path, value);
    this._version += 1;
    this.later(() => this.put());
  }

  /** Now instead of after a pause in typing. */
  async settle(): Promise<void> {
    const { _task: task } = this;
    if (this._timer !== undefined && task) {
      clearTimeout(this._timer);
      this._timer = undefined;
      await task();
    }
  }

  private async show(
    template: TemplateInfo,
    draft: IDraft | null = null
  ): Promise<void> {
    this._version += 1;
    this.template = template;
    this.text = draft?.text ?? template.text;
    this.isOwnText = draft?.isOwn ?? false;
    this.values = null; // A field typed into before would lose the template's others.
    await this.look();
  }

  private remember(): void {
    if (this.template) {
      const { text, isOwnText } = this;
      this.drafts.keep(this.template, { text, isOwn: isOwnText });
    }
  }

  private later(task: () => Promise<void>): void {
    clearTimeout(this._timer);
    this._task = task;
    this._timer = setTimeout(() => {
      this._timer = undefined;
      void task();
    }, TYPING_MS);
    this._changed.emit();
  }

  /** Fields to text, then what is said of the text. */
  private async put(): Promise<void> {
    const version = this._version;
    await this.ask(async () => {
      const text = await this.requests.render(this.values ?? {});
      if (version === this._version) {
        this.text = text;
        this.remember();
        await this.look(false);
      }
    });
  }

  /** What the text says, and what is wrong with it. */
  private async look(takesValues = true): Promise<void> {
    const version = this._version;
    await this.ask(async () => {
      const check = await this.requests.check(this.text);
      if (version !== this._version) {
        return; // Typed on meanwhile: the next answer counts.
      }
      this.check = check;
      if (takesValues) {
        this.values = check.values;
      }
      await this.showFields(version);
    });
  }

  /** A template for another provider has other fields. */
  private async showFields(version: number): Promise<void> {
    const provider = String(this.values?.provider ?? USUAL);
    if (provider === this._provider) {
      return;
    }
    const schema = await this.requests.schema(provider);
    if (version === this._version) {
      this.schema = schema;
      this._provider = provider;
    }
  }

  private async ask(work: () => Promise<void>): Promise<void> {
    this._waiting += 1;
    this._changed.emit();
    try {
      await work();
      this.trouble = null;
    } catch (error) {
      this.trouble = asTrouble(error);
    } finally {
      this._waiting -= 1;
      if (!this._disposed) {
        this._changed.emit();
      }
    }
  }

  private _provider = USUAL;
  private _version = 0;
  private _waiting = 0;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _task: (() => Promise<void>) | null = null;
  private _disposed = false;
  private _changed = new Signal<NewClusterModel, void>(this);
}

const KEY = 'llmops:cluster-drafts';

/** A text, and whether it was edited by hand: fields do not write over such a text. */
interface IDraft {
  text: string;
  isOwn: boolean;
}

/**
 * What was typed over each template and not started yet. It outlives the form and a reload of
 * the page, not the browser's tab: a text may have variables that belong in no other place.
 */
export class Drafts {
  constructor(
    private memory: Pick<Storage, 'getItem' | 'setItem'> = window.sessionStorage
  ) {}

  /** A template as it was left; null where it was not changed. */
  of(template: TemplateInfo): IDraft | null {
    const draft = this.all[keyOf(template)];
    return draft?.text && draft.text !== template.text ? draft : null;
  }

  /** Keep a draft, or forget it where its text is that of the template itself. */
  keep(template: TemplateInfo, draft: IDraft): void {
    const all = this.all;
    delete all[keyOf(template)];
    if (draft.text !== template.text) {
      all[keyOf(template)] = draft;
    }
    this.memory.setItem(KEY, JSON.stringify(all));
  }

  private get all(): Record<string, IDraft | undefined> {
    try {
      const found: unknown = JSON.parse(this.memory.getItem(KEY) ?? '{}');
      return typeof found === 'object' && found !== null
        ? (found as Record<string, IDraft | undefined>)
        : {};
    } catch {
      return {};
    }
  }
}

function keyOf({ name, path }: TemplateInfo): string {
  return path ?? `:${name}`;
}
