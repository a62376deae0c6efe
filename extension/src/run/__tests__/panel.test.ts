import { describe, expect, it, vi } from 'vitest';

import { IPanelModel, renderPanel } from '../../panelModule';

const HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>';
const NOTHING = { columns: [], rows: [] };
const STATE = {
  run_id: 'tags-1',
  state: 'RUNNING',
  columns: [],
  samples: {
    at: 'after 120 rows',
    columns: ['row', 'prompt', 'answer', HOSTILE],
    rows: [['7', HOSTILE, 'thai', '']]
  },
  members: { columns: ['', 'rows/s'], rows: [['replica 0', '20']] },
  outputs: [{ what: 'scores', path: `s3://bucket/${HOSTILE}`, size: '' }],
  saves: 'the finished rows'
};

async function drawn(state: object): Promise<HTMLElement> {
  const host = document.createElement('div');
  document.body.append(host);
  const model: IPanelModel = {
    get: name => (name === 'state' ? state : name === 'columns' ? null : ''),
    on: () => undefined,
    off: () => undefined,
    send: () => undefined
  };
  renderPanel(model, host);
  await vi.waitFor(() =>
    expect(host.querySelector('.llmops-title')?.textContent).toBe('tags-1')
  );
  return host;
}

const fold = (host: HTMLElement, title: string) =>
  [...host.querySelectorAll<HTMLElement>('details')].find(element =>
    element.textContent?.includes(title)
  );

describe('the panel', () => {
  it('shows what a model wrote as text, never as markup', async () => {
    const host = await drawn(STATE);
    expect(host.querySelectorAll('img, script')).toHaveLength(0);
    const sample = host.querySelector('.llmops-sample');
    expect(sample?.textContent).toContain(HOSTILE);
    const texts = [...host.querySelectorAll('.llmops-sampletext')];
    expect(texts.map(element => element.textContent)).toEqual([
      '7',
      HOSTILE,
      'thai',
      '–'
    ]);
    expect(host.querySelector('.llmops-outputs code')?.textContent).toBe(
      STATE.outputs[0].path
    );
  });

  it('hides samples and replicas that a run does not have', async () => {
    const host = await drawn({
      ...STATE,
      samples: { at: '', ...NOTHING },
      members: NOTHING
    });
    expect(fold(host, 'Samples')?.hidden).toBe(true);
    expect(host.textContent).not.toContain('Replicas');
  });

  it('lists replicas where there are several', async () => {
    const rows = [
      ['replica 0', '20'],
      ['replica 1', '10']
    ];
    const host = await drawn({
      ...STATE,
      members: { columns: ['', 'rows/s'], rows }
    });
    expect(fold(host, 'Replicas (2)')?.textContent).toContain('replica 1');
  });

  it('says what a run of the kind saves when it is stopped', async () => {
    const host = await drawn(STATE);
    const stop = host.querySelector<HTMLButtonElement>('.llmops-stop button');
    stop?.click();
    expect(host.querySelector('.llmops-stop')?.textContent).toContain(
      'Stop and save the finished rows?'
    );
  });
});
