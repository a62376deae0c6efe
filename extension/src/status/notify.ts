import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';

import { CommandIDs } from '../commands';
import { IPreferences, IRunsModel } from '../tokens';
import { EndNotices } from './endNotices';

/**
 * Shows a notification when runs end.
 */
export const notifyPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:notify',
  description: 'Notifies when a training run ends.',
  autoStart: true,
  requires: [IRunsModel, IPreferences],
  activate: (
    app: JupyterFrontEnd,
    runs: IRunsModel,
    preferences: IPreferences
  ) => {
    const notices = new EndNotices(
      Notification.manager,
      run =>
        void (run
          ? app.commands.execute(CommandIDs.openRun, { runId: run.run_id })
          : app.commands.execute(CommandIDs.showRuns))
    );
    runs.ended.connect((_, run) => {
      const wanted = preferences.notifyOnEnd;
      const isLeftOut =
        run.hidden ||
        wanted === 'never' ||
        (wanted === 'failed' && run.state !== 'FAILED');
      if (!isLeftOut) {
        notices.add(run);
      }
    });
  }
};
