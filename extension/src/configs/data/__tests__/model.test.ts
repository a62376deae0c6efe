import { describe, expect, it } from 'vitest';

import { ConfigData, DataBody, DataRow } from '../../../wire';
import { DataModel, IDataRequests } from '../model';

const DATA: ConfigData = {
  side: 'train',
  has_eval: true,
  facts: [],
  lengths: '2 rows of a.jsonl',
  bins: [],
  rows: [],
  took_s: 1
};
const ROW: DataRow = { number: 2, head: 'row 2', hidden: 0, tokens: [] };

/** Requests that are answered by hand, in any order. */
class Asked implements IDataRequests {
  bodies: DataBody[] = [];
  signals: AbortSignal[] = [];
  answers: ((data: ConfigData) => void)[] = [];
  refusals: ((error: Error) => void)[] = [];

  text = () => Promise.resolve('model: x');

  data = (body: DataBody, signal: AbortSignal) => {
    this.bodies.push(body);
    this.signals.push(signal);
    return new Promise<ConfigData>((resolve, reject) => {
      this.answers.push(resolve);
      this.refusals.push(reject);
    });
  };

  row = () => Promise.resolve(ROW);
}

const turns = () => new Promise(resolve => setTimeout(resolve, 0));

describe('the data of a config', () => {
  it('asks for the text as it is now, and keeps the answer', async () => {
    const asked = new Asked();
    const model = new DataModel('a.train.yaml', asked);
    const loading = model.load();
    await turns();
    expect(model.isBusy).toBe(true);
    expect(asked.bodies).toEqual([
      { path: 'a.train.yaml', text: 'model: x', side: 'train' }
    ]);
    asked.answers[0](DATA);
    await loading;
    expect([model.isBusy, model.data]).toEqual([false, DATA]);
  });

  it('gives up an earlier question, whichever answer comes last', async () => {
    const asked = new Asked();
    const model = new DataModel('a.train.yaml', asked);
    const first = model.load('train');
    await turns();
    const second = model.load('eval');
    await turns();
    expect(asked.signals.map(signal => signal.aborted)).toEqual([true, false]);
    const held: ConfigData = { ...DATA, side: 'eval' };
    asked.answers[1](held);
    await second;
    asked.answers[0](DATA);
    await first;
    expect([model.data, model.side]).toEqual([held, 'eval']);
  });

  it('shows an error in place of what was found, until it is asked again', async () => {
    const asked = new Asked();
    const model = new DataModel('a.train.yaml', asked);
    const first = model.load();
    await turns();
    asked.refusals[0](new Error('row 2 is broken'));
    await first;
    expect(model.trouble?.message).toBe('row 2 is broken');
    const second = model.load();
    expect(model.trouble).toBeNull();
    await turns();
    asked.answers[1](DATA);
    await second;
    await model.showRow(2);
    expect(model.row).toEqual(ROW);
  });
});
