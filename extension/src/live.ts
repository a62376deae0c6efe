import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { DisposableDelegate, IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { ILive, Json, LiveMessage } from './tokens';
import { LiveHeader, LiveRequest } from './wire';

type Listener = (message: LiveMessage) => void;

interface ITopic {
  listeners: Set<Listener>;
  have?: () => Json;
}

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
/** A silent connection is asked whether it lives; proxies drop idle ones without a word. */
const PING_MS = 20_000;

/**
 * Read a binary message: length of the header (uint32, little end first), header, payload.
 */
export function unpack(buffer: ArrayBuffer): [LiveHeader, ArrayBuffer] {
  const length = new DataView(buffer).getUint32(0, true);
  const text = new TextDecoder().decode(new Uint8Array(buffer, 4, length));
  return [JSON.parse(text) as LiveHeader, buffer.slice(4 + length)];
}

export class Live implements ILive {
  constructor(private settings: ServerConnection.ISettings) {}

  get isConnected(): boolean {
    return this._connected;
  }

  get statusChanged(): ISignal<ILive, boolean> {
    return this._statusChanged;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  dispose(): void {
    this._disposed = true;
    clearTimeout(this._retry);
    clearInterval(this._ping);
    this._socket?.close();
    this._topics.clear();
    Signal.clearData(this);
  }

  subscribe(topic: string, listener: Listener, have?: () => Json): IDisposable {
    const known = this._topics.get(topic);
    if (known) {
      known.listeners.add(listener);
    } else {
      this._topics.set(topic, { listeners: new Set([listener]), have });
    }
    // Also for a second listener: it needs what the first has had already.
    this.ask(topic);
    this.connect();
    return new DisposableDelegate(() => this.drop(topic, listener));
  }

  private drop(topic: string, listener: Listener): void {
    const known = this._topics.get(topic);
    known?.listeners.delete(listener);
    if (known && known.listeners.size === 0) {
      this._topics.delete(topic);
      this.send({ op: 'unsubscribe', topic });
    }
  }

  private ask(topic: string): void {
    const known = this._topics.get(topic);
    const have = known?.listeners.size === 1 ? known.have?.() : undefined;
    this.send({ op: 'subscribe', topic, have: have ?? {} });
  }

  private send(message: LiveRequest): void {
    if (this._socket?.readyState === WebSocket.OPEN) {
      this._socket.send(JSON.stringify(message));
    }
  }

  private connect(): void {
    if (this._socket || this._disposed) {
      return;
    }
    const { wsUrl, appendToken, token, WebSocket: Socket } = this.settings;
    let url = URLExt.join(wsUrl, 'llmops', 'live');
    if (appendToken && token) {
      url += `?token=${encodeURIComponent(token)}`;
    }
    const socket = new Socket(url);
    socket.binaryType = 'arraybuffer';
    this._socket = socket;
    socket.onopen = () => this.opened();
    socket.onmessage = event => this.received(event.data);
    socket.onclose = () => this.closed(socket);
  }

  private opened(): void {
    this._seq = 0;
    this._heard = Date.now();
    this._topics.forEach((_, topic) => this.ask(topic));
    clearInterval(this._ping);
    this._ping = setInterval(() => this.checkLife(), PING_MS);
    this.setConnected(true);
  }

  private checkLife(): void {
    if (Date.now() - this._heard > 2.5 * PING_MS) {
      this.restart();
    } else {
      this.send({ op: 'ping' });
    }
  }

  private received(data: unknown): void {
    const isBinary = data instanceof ArrayBuffer;
    const [header, payload] = isBinary
      ? unpack(data)
      : [JSON.parse(data as string) as LiveHeader, null];
    this._heard = Date.now();
    this._waitMs = FIRST_WAIT_MS;
    if (header.seq !== this._seq + 1) {
      this.restart();
      return;
    }
    this._seq = header.seq;
    // The server builds each kind from the model that LiveMessage has for it.
    const { kind, data: content } = header;
    const message = { kind, data: content, payload } as unknown as LiveMessage;
    this._topics.get(header.topic)?.listeners.forEach(listener => {
      try {
        listener(message);
      } catch (error) {
        console.error(`llmops: a listener of ${header.topic} failed`, error);
      }
    });
  }

  private restart(): void {
    const socket = this._socket;
    if (socket) {
      socket.close();
      this.closed(socket);
    }
  }

  private closed(socket: WebSocket): void {
    if (socket !== this._socket) {
      return;
    }
    this._socket = null;
    clearInterval(this._ping);
    this.setConnected(false);
    if (this._topics.size > 0 && !this._disposed) {
      const wait = this._waitMs * (0.75 + Math.random() / 2);
      this._waitMs = Math.min(2 * this._waitMs, LONGEST_WAIT_MS);
      this._retry = setTimeout(() => this.connect(), wait);
    }
  }

  private setConnected(connected: boolean): void {
    if (connected !== this._connected) {
      this._connected = connected;
      this._statusChanged.emit(connected);
    }
  }

  private _topics = new Map<string, ITopic>();
  private _socket: WebSocket | null = null;
  private _seq = 0;
  private _heard = 0;
  private _waitMs = FIRST_WAIT_MS;
  private _retry: ReturnType<typeof setTimeout> | undefined;
  private _ping: ReturnType<typeof setInterval> | undefined;
  private _connected = false;
  private _disposed = false;
  private _statusChanged = new Signal<ILive, boolean>(this);
}
