import { asTrouble } from '../../api';
import { ConfigPlan, PlanBody, TemplateInfo, Trouble } from '../../wire';
import { NewestAnswer } from '../newestAnswer';

/** What is asked of the server. */
export interface IPlanRequests {
  /** The text as it is edited now, or as it is saved. */
  text: () => Promise<string>;
  plan: (body: PlanBody, signal: AbortSignal) => Promise<ConfigPlan>;
  templates: () => Promise<TemplateInfo[]>;
}

/**
 * The plan of one config on the machines of a template.
 */
export class PlanModel extends NewestAnswer {
  constructor(
    readonly path: string,
    private requests: IPlanRequests
  ) {
    super();
  }

  /** What was planned last; it stays in sight while it is planned again. */
  plan: ConfigPlan | null = null;
  trouble: Trouble | null = null;
  cluster = 'local';
  /** Names of the templates that can be read. */
  clusters: string[] = ['local'];

  async load(cluster: string = this.cluster): Promise<void> {
    const signal = this.begin();
    this.cluster = cluster;
    this.isBusy = true;
    this.trouble = null;
    this.emitChanged();
    try {
      const text = await this.requests.text();
      const body = { path: this.path, text, cluster };
      const plan = await this.requests.plan(body, signal);
      this.settle(signal, () => (this.plan = plan));
    } catch (error) {
      this.settle(signal, () => (this.trouble = asTrouble(error)));
    }
  }

  async loadClusters(): Promise<void> {
    try {
      const templates = await this.requests.templates();
      const names = templates
        .filter(({ problems }) => problems.length === 0)
        .map(({ name }) => name);
      this.clusters = [...new Set(['local', ...names])];
    } catch {
      // The plan on this machine needs no list.
    }
    this.emitChanged();
  }
}
