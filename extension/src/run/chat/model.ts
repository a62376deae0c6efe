import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { asTrouble } from '../../api';
import { ILive, LiveMessage } from '../../tokens';
import { ChatBody, ChatHistory, ChatTurn, Trouble } from '../../wire';

/**
 * What a chat asks of the server.
 */
export interface IChatServer {
  live: ILive;
  history: () => Promise<ChatHistory>;

  /** Resolves with the id of the turn once the cluster has it. */
  ask: (body: ChatBody) => Promise<string>;
  stop: (turnId: string) => Promise<void>;
}

/** What is asked besides the prompt. */
export type ChatSettings = Required<
  Pick<ChatBody, 'system' | 'max_tokens' | 'temperature' | 'only'>
>;

/**
 * A conversation with the models of one run. The server keeps it: a reload shows it again.
 */
export class ChatModel implements IDisposable {
  constructor(private server: IChatServer) {}

  settings: ChatSettings = {
    system: '',
    max_tokens: 256,
    temperature: 0,
    only: ''
  };

  /** The newest turn; null in a new conversation. */
  get turn(): ChatTurn | null {
    return this._turn;
  }

  /** The prompt that the cluster does not have yet; empty if there is none. */
  get pending(): string {
    return this._pending;
  }

  get trouble(): Trouble | null {
    return this._trouble;
  }

  get isLoading(): boolean {
    return this._isLoading;
  }

  /** A prompt is being answered; the next one waits for it. */
  get isBusy(): boolean {
    return this._pending !== '' || (this._turn !== null && !this._turn.is_over);
  }

  get changed(): ISignal<ChatModel, void> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    this._subscription?.dispose();
    Signal.clearData(this);
  }

  /** Read the conversation that the server has. */
  async load(): Promise<void> {
    try {
      const { turn } = await this.server.history();
      if (!this._pending && this._turn === null) {
        this.take(turn);
      }
    } catch (error) {
      this._trouble = asTrouble(error);
    }
    this._isLoading = false;
    this._changed.emit();
  }

  /** @returns whether the prompt was accepted; a refused one should be kept in the box */
  async ask(prompt: string): Promise<boolean> {
    if (this.isBusy || !prompt.trim()) {
      return false;
    }
    this._pending = prompt;
    this._trouble = null;
    this._isStopped = false;
    this._changed.emit();
    try {
      const after = this._turn?.id ?? '';
      const id = await this.server.ask({ prompt, after, ...this.settings });
      this.follow(id);
      if (this._isStopped) {
        await this.server.stop(id);
      }
      return true;
    } catch (error) {
      this._pending = '';
      this._trouble = asTrouble(error);
      this._changed.emit();
      return false;
    }
  }

  /** Stop the answers; what is there stays. */
  async stop(): Promise<void> {
    this._isStopped = true;
    const turn = this._turn;
    if (this._pending || !turn || turn.is_over) {
      return; // `ask` stops it once it has an id.
    }
    try {
      await this.server.stop(turn.id);
    } catch (error) {
      this._trouble = asTrouble(error);
      this._changed.emit();
    }
  }

  /** Begin a new conversation. */
  reset(): void {
    if (!this.isBusy) {
      this.take(null);
      this._trouble = null;
      this._changed.emit();
    }
  }

  private take(turn: ChatTurn | null): void {
    this._subscription?.dispose();
    this._subscription = null;
    this._turn = turn;
    if (turn && !turn.is_over) {
      this.follow(turn.id);
    }
  }

  private follow(id: string): void {
    if (this._isDisposed) {
      return;
    }
    this._subscription?.dispose();
    this._subscription = this.server.live.subscribe(`chat/${id}`, message =>
      this.onMessage(message)
    );
  }

  private onMessage(message: LiveMessage): void {
    if (message.kind === 'chat') {
      this._turn = message.data;
      this._pending = '';
      if (message.data.is_over) {
        this._subscription?.dispose();
        this._subscription = null;
      }
    } else if (message.kind === 'trouble') {
      this._trouble = message.data;
    } else if (message.kind === 'fine') {
      this._trouble = null;
    }
    this._changed.emit();
  }

  private _turn: ChatTurn | null = null;
  private _pending = '';
  private _trouble: Trouble | null = null;
  private _isLoading = true;
  private _isStopped = false;
  private _isDisposed = false;
  private _subscription: IDisposable | null = null;
  private _changed = new Signal<ChatModel, void>(this);
}
