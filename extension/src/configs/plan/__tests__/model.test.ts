import { describe, expect, it } from 'vitest';

import { ConfigPlan, PlanBody, TemplateInfo } from '../../../wire';
import { IPlanRequests, PlanModel } from '../model';

const PLAN: ConfigPlan = { device: 'H100', fits: true, facts: [], parts: [] };

/** Requests that are answered by hand, in any order. */
class Asked implements IPlanRequests {
  bodies: PlanBody[] = [];
  answers: ((plan: ConfigPlan) => void)[] = [];
  refusals: ((error: Error) => void)[] = [];
  list: () => Promise<TemplateInfo[]> = () => Promise.resolve([]);

  text = () => Promise.resolve('model: x');
  templates = () => this.list();

  plan = (body: PlanBody) => {
    this.bodies.push(body);
    return new Promise<ConfigPlan>((resolve, reject) => {
      this.answers.push(resolve);
      this.refusals.push(reject);
    });
  };
}

const turns = () => new Promise(resolve => setTimeout(resolve, 0));
const template = (name: string, problems: unknown[] = []) =>
  ({ name, path: null, text: '', problems }) as TemplateInfo;

describe('the plan of a config', () => {
  it('is of the text as it is now, on the machines of a template', async () => {
    const asked = new Asked();
    const model = new PlanModel('a.train.yaml', asked);
    const loading = model.load('gcp-h100');
    await turns();
    expect(asked.bodies).toEqual([
      { path: 'a.train.yaml', text: 'model: x', cluster: 'gcp-h100' }
    ]);
    asked.answers[0](PLAN);
    await loading;
    expect([model.plan, model.isBusy]).toEqual([PLAN, false]);
  });

  it('is of the newest template, whichever answer comes last', async () => {
    const asked = new Asked();
    const model = new PlanModel('a.train.yaml', asked);
    const first = model.load('local');
    await turns();
    const second = model.load('spot');
    await turns();
    const newest = { ...PLAN, device: 'A100' };
    asked.answers[1](newest);
    asked.answers[0](PLAN);
    await Promise.all([first, second]);
    expect([model.plan, model.cluster]).toEqual([newest, 'spot']);
  });

  it('shows an error until it is asked again', async () => {
    const asked = new Asked();
    const model = new PlanModel('a.train.yaml', asked);
    const loading = model.load();
    await turns();
    asked.refusals[0](new Error('no config.json'));
    await loading;
    expect(model.trouble?.message).toBe('no config.json');
    void model.load();
    expect(model.trouble).toBeNull();
  });

  it('offers the templates that can be read, and local without a list', async () => {
    const asked = new Asked();
    const model = new PlanModel('a.train.yaml', asked);
    asked.list = () =>
      Promise.resolve([template('local'), template('big'), template('x', [1])]);
    await model.loadClusters();
    expect(model.clusters).toEqual(['local', 'big']);
    asked.list = () => Promise.reject(new Error('away'));
    await model.loadClusters();
    expect(model.clusters).toEqual(['local', 'big']);
  });
});
