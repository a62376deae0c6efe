import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import {
  ITranslator,
  nullTranslator,
  TranslationBundle
} from '@jupyterlab/translation';

import { CommandIDs } from '../commands';
import { IPreferences, IRunsModel } from '../tokens';
import * as fmt from '../ui/format';
import { RunRow } from '../wire';

const MAX_LENGTH = 400;

/**
 * What a notification says: how it went, why, and what to do.
 */
export function endText(run: RunRow, trans: TranslationBundle): string {
  const shown = run.title || run.run_id;
  if (run.state === 'SUCCEEDED') {
    const figures = trans.__('loss %1', fmt.loss(run.loss));
    return trans.__('Run %1 succeeded: %2', shown, figures);
  }
  const what =
    run.state === 'FAILED'
      ? trans.__('Run %1 failed', shown)
      : trans.__('Run %1 was stopped', shown);
  const why = run.message ? `${what}: ${run.message}` : what;
  const text = run.remedy ? `${why}\n${trans.__('Try:')} ${run.remedy}` : why;
  return text.length > MAX_LENGTH ? `${text.slice(0, MAX_LENGTH - 1)}…` : text;
}

/**
 * Tells when a run ends, wherever in Lab the user is.
 */
export const notifyPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:notify',
  description: 'Notifies when a training run ends.',
  autoStart: true,
  requires: [IRunsModel, IPreferences],
  optional: [ITranslator],
  activate: (
    app: JupyterFrontEnd,
    runs: IRunsModel,
    preferences: IPreferences,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load('llmops');
    runs.ended.connect((_, run) => {
      const failed = run.state === 'FAILED';
      const wanted = preferences.notifyOnEnd;
      if (wanted === 'never' || (wanted === 'failed' && !failed)) {
        return;
      }
      Notification.emit(
        endText(run, trans),
        failed ? 'error' : run.state === 'SUCCEEDED' ? 'success' : 'info',
        {
          // A failure waits until it has been seen.
          autoClose: failed ? false : 8000,
          actions: [
            {
              label: trans.__('Open run'),
              callback: () =>
                void app.commands.execute(CommandIDs.openRun, {
                  runId: run.run_id
                })
            }
          ]
        }
      );
    });
  }
};
