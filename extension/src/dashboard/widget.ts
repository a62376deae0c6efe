import { MainAreaWidget } from '@jupyterlab/apputils';
import { IFrame } from '@jupyterlab/ui-components';

import { dashboardIcon } from '../clusters/icons';

const GONE = 'llmops-mod-gone';

/**
 * Ray's own page below Jupyter's address. It needs scripts, and its requests the login cookie.
 */
export class DashboardWidget extends MainAreaWidget<IFrame> {
  constructor(
    readonly cluster: string,
    private base: string,
    submissionId: string
  ) {
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
    this.id = dashboardId(cluster);
    this.addClass('llmops-dashboard');
    this.title.label = `Ray: ${cluster}`;
    this.title.icon = dashboardIcon;
    this.title.closable = true;
    this.frame?.setAttribute('title', `Ray Dashboard of ${cluster}`);
    this.open(submissionId);
  }

  /** Of the job that was asked for last; empty for the first page. */
  get submissionId(): string {
    return this._submissionId;
  }

  /** The address that is shown, for a tab of the browser's own. */
  get address(): string {
    // What the user went to inside the frame; it is of our origin.
    const hash = this.window?.location.hash;
    return hash ? this.base + hash : this.content.url;
  }

  /** Go to a job's page, or with an empty id to the first page. */
  open(submissionId: string): void {
    this._submissionId = submissionId;
    const address = dashboardAddress(this.base, submissionId);
    if (this.content.url === address) {
      this.reload();
    } else {
      this.content.url = address;
    }
  }

  /** Ray's page goes on showing what it knew; a cluster that is gone must not look alive. */
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
      this.content.url = dashboardAddress(this.base, this._submissionId);
    }
  }

  private get frame(): HTMLIFrameElement | null {
    return this.content.node.querySelector('iframe');
  }

  private get window(): Window | null {
    return this.frame?.contentWindow ?? null;
  }

  private _submissionId = '';
}

export function dashboardId(cluster: string): string {
  return `llmops-dashboard-${cluster}`;
}

/** Ray's page finds its own parts only below an address that ends in a slash. */
export function dashboardAddress(base: string, submissionId: string): string {
  return submissionId
    ? `${base}#/jobs/${encodeURIComponent(submissionId)}`
    : base;
}
