import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { ITranslator } from '@jupyterlab/translation';

import { Api, asTrouble } from './api';
import { Live } from './live';
import { Operations } from './operations';
import { ILLMOps, IOperations } from './tokens';
import { setTranslator } from './trans';

/**
 * Provides access to the server. The first request checks that both versions match.
 */
export const connectionPlugin: JupyterFrontEndPlugin<ILLMOps> = {
  id: '@llmops/lab:connection',
  description: 'Requests and live messages of the llmops server extension.',
  provides: ILLMOps,
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, translator: ITranslator | null) => {
    if (translator) {
      setTranslator(translator);
    }
    const settings = app.serviceManager.serverSettings;
    const api = new Api(settings, new Live(settings));
    api.ready.catch(error => {
      const { message, remedy } = asTrouble(error);
      Notification.error(`LLM Training: ${message}. Try: ${remedy}`, {
        autoClose: false
      });
    });
    return api;
  }
};

/**
 * Provides what runs on the server for longer than a request.
 */
export const operationsPlugin: JupyterFrontEndPlugin<IOperations> = {
  id: '@llmops/lab:operations',
  description: 'Operations on the server, with their progress.',
  provides: IOperations,
  requires: [ILLMOps],
  activate: (_: JupyterFrontEnd, llmops: ILLMOps) => new Operations(llmops.live)
};
