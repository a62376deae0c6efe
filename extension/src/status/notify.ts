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
import { knownFigures } from '../runs/model';
import { IPreferences, IRunsModel } from '../tokens';
import { RunRow } from '../wire';

const MAX_LENGTH = 400;

/**
 * Return what a notification says: how the run ended, why, and what to do.
 */
export function endText(run: RunRow, trans: TranslationBundle): string {
  const shown = run.title || run.run_id;
  if (run.state === 'SUCCEEDED') {
    const [figure] = knownFigures(run, { listed: true });
    return figure
      ? trans.__('Run %1 succeeded: %2', shown, figure)
      : trans.__('Run %1 succeeded', shown);
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
 * Shows a notification when a run ends.
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
      if (run.hidden) {
        return;
      }
      const failed = run.state === 'FAILED';
      const wanted = preferences.notifyOnEnd;
      if (wanted === 'never' || (wanted === 'failed' && !failed)) {
        return;
      }
      Notification.emit(
        endText(run, trans),
        failed ? 'error' : run.state === 'SUCCEEDED' ? 'success' : 'info',
        {
          // A failure stays until it is dismissed.
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
