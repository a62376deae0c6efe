import { ServerConnection } from '@jupyterlab/services';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { Live, unpack } from '../live';
import { LiveMessage } from '../tokens';

class FakeSocket {
  static all: FakeSocket[] = [];
  binaryType = '';
  readyState = 0;
  sent: Record<string, unknown>[] = [];
  onopen: (() => void) | null = null;
  onclose: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;

  constructor(readonly url: string) {
    FakeSocket.all.push(this);
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }

  close(): void {
    this.readyState = 3;
  }

  open(): void {
    this.readyState = 1;
    this.onopen?.();
  }

  say(seq: number, topic = 'numbers', data = {}): void {
    const message = { seq, topic, kind: 'news', data };
    this.onmessage?.({ data: JSON.stringify(message) });
  }

  drop(): void {
    this.readyState = 3;
    this.onclose?.();
  }
}

function makeLive(): Live {
  const settings = ServerConnection.makeSettings({
    baseUrl: 'http://host/user/someone/',
    wsUrl: 'ws://host/user/someone/',
    token: 'a b',
    appendToken: true,
    WebSocket: FakeSocket as unknown as typeof WebSocket
  });
  return new Live(settings);
}

const last = () => FakeSocket.all[FakeSocket.all.length - 1];

describe('Live', () => {
  beforeEach(() => {
    FakeSocket.all = [];
    vi.useFakeTimers();
    vi.stubGlobal('WebSocket', { OPEN: 1 });
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  it('opens one socket below the base URL, however many topics there are', () => {
    const live = makeLive();
    live.subscribe('numbers', () => undefined);
    live.subscribe('letters', () => undefined);
    expect(FakeSocket.all.map(s => s.url)).toEqual([
      'ws://host/user/someone/llmops/live?token=a%20b'
    ]);
    last().open();
    expect(last().sent.map(m => m.topic)).toEqual(['numbers', 'letters']);
    live.dispose();
  });

  it('hands each message to those who listen to its topic', () => {
    const live = makeLive();
    const seen: LiveMessage[] = [];
    live.subscribe('numbers', message => seen.push(message));
    last().open();
    last().say(1, 'numbers', { a: 1 });
    last().say(2, 'letters');
    expect(seen).toEqual([{ kind: 'news', data: { a: 1 }, payload: null }]);
    live.dispose();
  });

  it('begins again after a gap, and says what it has', () => {
    const live = makeLive();
    const seen: LiveMessage[] = [];
    live.subscribe(
      'numbers',
      message => seen.push(message),
      () => ({ rows: seen.length })
    );
    last().open();
    last().say(1);
    last().say(3);
    expect(seen).toHaveLength(1);
    vi.advanceTimersByTime(2000);
    expect(FakeSocket.all).toHaveLength(2);
    last().open();
    expect(last().sent[0]).toEqual({
      op: 'subscribe',
      topic: 'numbers',
      have: { rows: 1 }
    });
    live.dispose();
  });

  it('comes back after a lost connection, ever more patiently', () => {
    const live = makeLive();
    const states: boolean[] = [];
    live.statusChanged.connect((_, connected) => states.push(connected));
    live.subscribe('numbers', () => undefined);
    last().open();
    last().drop();
    vi.advanceTimersByTime(1000);
    last().drop();
    vi.advanceTimersByTime(600);
    expect(FakeSocket.all).toHaveLength(2);
    vi.advanceTimersByTime(1000);
    expect(FakeSocket.all).toHaveLength(3);
    last().open();
    expect(states).toEqual([true, false, true]);
    live.dispose();
  });

  it('gives up a line that has gone silent', () => {
    const live = makeLive();
    live.subscribe('numbers', () => undefined);
    last().open();
    vi.advanceTimersByTime(45_000);
    expect(last().sent.filter(m => m.op === 'ping')).toHaveLength(2);
    vi.advanceTimersByTime(30_000);
    expect(FakeSocket.all.length).toBeGreaterThan(1);
    live.dispose();
  });

  it('stops listening when the last listener leaves', () => {
    const live = makeLive();
    const one = live.subscribe('numbers', () => undefined);
    const two = live.subscribe('numbers', () => undefined);
    last().open();
    one.dispose();
    expect(last().sent.some(m => m.op === 'unsubscribe')).toBe(false);
    two.dispose();
    expect(last().sent.at(-1)).toEqual({ op: 'unsubscribe', topic: 'numbers' });
    live.dispose();
  });
});

describe('unpack', () => {
  it('reads a header that is padded with blanks, and the floats behind it', () => {
    const head = JSON.stringify({ seq: 7, topic: 't', kind: 'rows', data: {} });
    const padded = head + ' '.repeat((4 - (head.length % 4)) % 4);
    const buffer = new ArrayBuffer(4 + padded.length + 8);
    new DataView(buffer).setUint32(0, padded.length, true);
    new Uint8Array(buffer).set(new TextEncoder().encode(padded), 4);
    new DataView(buffer).setFloat32(4 + padded.length, 1.5, true);
    new DataView(buffer).setFloat32(8 + padded.length, -2, true);
    const [header, payload] = unpack(buffer);
    expect(header.seq).toBe(7);
    expect([...new Float32Array(payload)]).toEqual([1.5, -2]);
  });
});
