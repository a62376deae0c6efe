import { describe, expect, it, vi } from 'vitest';

import { COLUMNS, packed } from '../../run/__tests__/fakes';
import widget, { IWidgetModel } from '../notebook';

/** The kernel's side of the widget. */
class Kernel implements IWidgetModel {
  sent: object[] = [];
  traits: Record<string, unknown> = {
    state: { run_id: 'r-1', columns: COLUMNS },
    columns: new DataView(packed([[1, NaN]])),
    log: '',
    notice: {},
    can_page: true
  };

  get<Value>(name: string): Value {
    return this.traits[name] as Value;
  }

  on(event: string, callback: (...args: never[]) => void): void {
    this.listeners.set(event, callback);
  }

  off(event: string): void {
    this.listeners.delete(event);
  }

  send(content: object): void {
    this.sent.push(content);
  }

  say(event: string, content: object = {}, buffers: DataView[] = []): void {
    const listener = this.listeners.get(event) as (...args: unknown[]) => void;
    listener(content, buffers);
  }

  listeners = new Map<string, (...args: never[]) => void>();
}

function shown(views = 1) {
  const model = new Kernel();
  const panel = widget();
  const forget = panel.initialize({ model });
  const hosts = Array.from({ length: views }, () => {
    const el = document.createElement('div');
    document.body.append(el);
    const erase = panel.render({ model, el });
    return { el, erase };
  });
  return { model, forget, hosts };
}

const steps = (el: HTMLElement) =>
  el.querySelector<HTMLElement>('.llmops-run')?.dataset.steps;

describe('the widget of a notebook', () => {
  it('draws the rows of its state and of messages, in all views', async () => {
    const { model, hosts } = shown(2);
    await vi.waitFor(() => expect(steps(hosts[1].el)).toBe('1'));
    const rows = new DataView(packed([[2, NaN]]));
    model.say('msg:custom', { kind: 'rows', first: 1 }, [rows]);
    for (const { el } of hosts) {
      await vi.waitFor(() => expect(steps(el)).toBe('2'));
    }
  });

  it('says that it was drawn, and asks for rows that are missing', () => {
    const { model } = shown();
    expect(model.sent).toEqual([{ kind: 'hello' }]);
    const rows = new DataView(packed([[9, NaN]]));
    model.say('msg:custom', { kind: 'rows', first: 8 }, [rows]);
    expect(model.sent).toContainEqual({ kind: 'resync' });
  });

  it('shows a notice of the kernel and its log', async () => {
    const { model, hosts } = shown();
    model.traits.notice = { message: 'no answer', remedy: 'llmops ls' };
    model.say('change:notice');
    model.traits.log = 'step 1';
    model.say('change:log');
    const text = () => hosts[0].el.textContent;
    await vi.waitFor(() => expect(text()).toContain('no answer'));
    expect(text()).toContain('step 1');
  });

  it('listens no longer once it is gone', () => {
    const { model, forget, hosts } = shown();
    hosts[0].erase();
    forget();
    expect(model.listeners.size).toBe(0);
  });
});
