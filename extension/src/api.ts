import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { ILLMOps, ILive, IRequest } from './tokens';
import { FieldProblem, Handshake, PROTOCOL, Trouble } from './wire';

const NAMESPACE = 'llmops';

/**
 * An answer that says what went wrong and what to do next.
 */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    trouble: Partial<Trouble>
  ) {
    super(trouble.message || `The server answered ${status}`);
    this.remedy = trouble.remedy ?? '';
    this.problems = trouble.problems ?? [];
  }

  readonly remedy: string;
  readonly problems: FieldProblem[];
}

/**
 * Whatever was thrown, as something that can be shown.
 */
export function asTrouble(error: unknown): Trouble {
  if (error instanceof ApiError) {
    return {
      message: error.message,
      remedy: error.remedy,
      problems: error.problems
    };
  }
  const message = error instanceof Error ? error.message : String(error);
  return { message, remedy: '', problems: [] };
}

export class Api implements ILLMOps {
  constructor(
    private settings: ServerConnection.ISettings,
    readonly live: ILive
  ) {
    this.ready = this.handshake();
    // Whoever needs it awaits it; nobody doing so is no unhandled rejection.
    this.ready.catch(() => undefined);
  }

  readonly ready: Promise<Handshake>;

  url(path: string): string {
    return URLExt.join(this.settings.baseUrl, NAMESPACE, path);
  }

  async request<T>(path: string, options: IRequest = {}): Promise<T> {
    const response = await this.send(path, options);
    const text = await response.text();
    return (text ? JSON.parse(text) : null) as T;
  }

  async fetchBytes(path: string): Promise<ArrayBuffer> {
    return (await this.send(path, {})).arrayBuffer();
  }

  private async send(path: string, options: IRequest): Promise<Response> {
    const { method = 'GET', body, signal } = options;
    const init: RequestInit = { method, signal };
    if (body !== undefined) {
      init.body = JSON.stringify(body);
      init.headers = { 'Content-Type': 'application/json' };
    }
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(
        this.url(path),
        init,
        this.settings
      );
    } catch (error) {
      if (signal?.aborted) {
        throw error;
      }
      throw new ApiError(0, {
        message: 'The Jupyter server does not answer',
        remedy:
          'check that it is still running; this page reconnects automatically'
      });
    }
    if (!response.ok) {
      throw new ApiError(response.status, await troubleOf(response));
    }
    return response;
  }

  private async handshake(): Promise<Handshake> {
    let answer: Handshake;
    try {
      answer = await this.request<Handshake>('handshake');
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) {
        throw new ApiError(404, {
          message: 'The server part of llmops-kernel is not enabled',
          remedy: 'jupyter server extension enable llmops_kernel.server'
        });
      }
      throw error;
    }
    if (answer.protocol !== PROTOCOL) {
      throw new ApiError(409, {
        message: `This page uses version ${PROTOCOL} of the llmops protocol, the server (${answer.version}) version ${answer.protocol}`,
        remedy:
          'reload this page; if that does not help, restart the Jupyter server'
      });
    }
    return answer;
  }
}

async function troubleOf(response: Response): Promise<Partial<Trouble>> {
  try {
    return (await response.json()) as Partial<Trouble>;
  } catch {
    return { message: `${response.status} ${response.statusText}` };
  }
}
