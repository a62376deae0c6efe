import { MainAreaWidget } from '@jupyterlab/apputils';
import { IFrame } from '@jupyterlab/ui-components';

import { dashboardIcon } from '../icons';
import { dashboardAddress, dashboardId, IPage } from './pages';

const GONE = 'llmops-mod-gone';

interface IDashboardOptions {
  cluster: string;

  /** The address of the cluster's proxy, with a slash at its end. */
  base: string;

  /** Null: the whole dashboard. */
  page: IPage | null;
  submissionId: string;
}

/**
 * Our server's page around Ray's own. It is of our origin and renews what Ray's page may read;
 * Ray's page is in a frame inside it, which has no origin.
 */
export class DashboardWidget extends MainAreaWidget<IFrame> {
  constructor(options: IDashboardOptions) {
    super({
      content: new IFrame({
        sandbox: [
          'allow-scripts',
          'allow-same-origin',
          'allow-popups',
          'allow-forms',
          'allow-downloads',
          'allow-modals'
        ]
      })
    });
    // Links of Ray's page open as any other page does. JupyterLab's list of values lacks this one.
    const sandbox = this.frame?.getAttribute('sandbox') ?? '';
    this.frame?.setAttribute(
      'sandbox',
      `${sandbox} allow-popups-to-escape-sandbox`
    );
    const { cluster, page } = options;
    this.cluster = cluster;
    this.page = page?.name ?? '';
    this._base = options.base;
    this.id = dashboardId(cluster, this.page);
    this.addClass('llmops-dashboard');
    const about = page ? `Ray ${page.label}` : 'Ray';
    this.title.label = `${about}: ${cluster}`;
    this.title.caption = `${page ? `${page.label} page of the` : 'The'} Ray Dashboard of ${cluster}`;
    this.title.icon = dashboardIcon;
    this.title.closable = true;
    this.frame?.setAttribute('title', this.title.caption);
    this.open(options.submissionId);
  }

  readonly cluster: string;

  /** Its name; empty for the whole dashboard. */
  readonly page: string;

  /** Of the job that was asked for last; empty for the first page. */
  get submissionId(): string {
    return this._submissionId;
  }

  /** The address that is shown, for a tab of the browser's own. */
  get address(): string {
    // What the user went to inside the frame; its page keeps ours up to date.
    const hash = this.window?.location.hash;
    return hash ? this._base + hash : this.content.url;
  }

  /** Go to a job's page, or with an empty id to the first page. */
  open(submissionId: string): void {
    this._submissionId = submissionId;
    if (this.content.url === this.wanted) {
      this.reload();
    } else {
      this.content.url = this.wanted;
    }
  }

  /** Ray's page keeps showing old data; a cluster that is gone must not look alive. */
  setState(state: string): void {
    const isReady = state === 'ready';
    if (isReady && this.hasClass(GONE)) {
      this.reload();
    }
    this.toggleClass(GONE, state !== '' && !isReady);
  }

  reload(): void {
    if (this.window) {
      this.window.location.reload();
    } else {
      this.content.url = this.wanted;
    }
  }

  private get wanted(): string {
    const { page, submissionId } = this;
    return dashboardAddress(this._base, { page, submissionId });
  }

  private get frame(): HTMLIFrameElement | null {
    return this.content.node.querySelector('iframe');
  }

  private get window(): Window | null {
    return this.frame?.contentWindow ?? null;
  }

  private _base: string;
  private _submissionId = '';
}
