import { INotebookTracker } from '@jupyterlab/notebook';
import {
  codeIcon,
  copyIcon,
  deleteIcon,
  editIcon,
  folderIcon,
  LabIcon,
  launchIcon,
  moveUpIcon,
  redoIcon,
  refreshIcon,
  stopIcon
} from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { argsOf, CommandIDs } from '../commands';
import { starIcon } from '../icons';
import { IRunsModel } from '../tokens';
import { trans } from '../trans';
import { insertCode } from '../ui/code';
import { RunRow } from '../wire';
import { RunActions } from './actions';

const DESCRIBED_BY = argsOf({
  runId: 'Id of the run; without it the run that is shown or chosen.'
});

interface ICommandServices {
  commands: CommandRegistry;
  runs: IRunsModel;
  actions: RunActions;
  notebooks: INotebookTracker | null;

  /** Id of the run that is shown; null without one. */
  shown: () => string | null;
}

interface IEntry {
  id: string;
  label: string;
  caption: string;
  icon: LabIcon;
  fits?: (row: RunRow) => boolean;
  /** Why it does not fit, for the tooltip. */
  else?: string;
  execute: (runId: string) => unknown;
}

/**
 * All that can be done to one run; returns the ids.
 */
export function addRunCommands(services: ICommandServices): string[] {
  const { commands, runs } = services;
  const entries = [...changing(services), ...looking(services)];
  entries.forEach(entry => {
    const row = (args: ReadonlyPartialJSONObject) =>
      runs.find(meant(services, args) ?? '');
    const isFit = (args: ReadonlyPartialJSONObject) => {
      const found = row(args);
      // Of a run that was not read yet nothing is known that an action could rely on.
      return !entry.fits || (found !== undefined && entry.fits(found));
    };
    const why = (args: ReadonlyPartialJSONObject) =>
      row(args) ? entry.else : trans.__('the run is being read');
    commands.addCommand(entry.id, {
      label: entry.label,
      caption: args =>
        isFit(args) ? entry.caption : `${entry.caption}: ${why(args) ?? ''}`,
      icon: entry.icon,
      describedBy: DESCRIBED_BY,
      isEnabled: args => meant(services, args) !== null && isFit(args),
      isToggled:
        entry.id === CommandIDs.starRun
          ? args => row(args)?.starred ?? false
          : undefined,
      execute: args => {
        const runId = meant(services, args);
        return runId === null ? undefined : entry.execute(runId);
      }
    });
  });
  const ids = entries.map(({ id }) => id);
  runs.changed.connect(() => {
    ids.forEach(id => commands.notifyCommandChanged(id));
  });
  return ids;
}

/** The run of the arguments, else the one that is shown, else the only one that is selected. */
export function meant(
  services: Pick<ICommandServices, 'runs' | 'shown'>,
  args: ReadonlyPartialJSONObject
): string | null {
  if (typeof args.runId === 'string' && args.runId) {
    return args.runId;
  }
  const { selected } = services.runs;
  return services.shown() ?? (selected.size === 1 ? [...selected][0] : null);
}

function changing({ actions }: ICommandServices): IEntry[] {
  return [
    {
      id: CommandIDs.stopRun,
      label: trans.__('Stop Run…'),
      caption: trans.__('Stop the run after it has saved its progress'),
      icon: stopIcon,
      fits: row => row.actions.includes('stop'),
      else: trans.__('it is not running'),
      execute: runId => actions.stop(runId)
    },
    {
      id: CommandIDs.moveRun,
      label: trans.__('Move Run in Queue…'),
      caption: trans.__(
        'Put the run before others that wait, or change its priority'
      ),
      icon: moveUpIcon,
      fits: row => row.actions.includes('stop'),
      else: trans.__('it is not running'),
      execute: runId => actions.move(runId)
    },
    {
      id: CommandIDs.retryRun,
      label: trans.__('Retry Run'),
      caption: trans.__(
        'Start a new attempt that continues from what was saved'
      ),
      icon: redoIcon,
      fits: row => row.actions.includes('retry'),
      else: trans.__('it has not ended, or its kind cannot be retried'),
      execute: runId => actions.retry(runId)
    },
    {
      id: CommandIDs.resubmitRun,
      label: trans.__('Re-submit Run with Edits…'),
      caption: trans.__(
        'Submit the config again with changes, with the current code'
      ),
      icon: refreshIcon,
      fits: row => row.actions.includes('resubmit'),
      else: trans.__('its kind cannot be re-submitted'),
      execute: runId => actions.resubmit(runId)
    },
    {
      id: CommandIDs.starRun,
      label: trans.__('Star Run'),
      caption: trans.__('Star the run, or remove its star'),
      icon: starIcon,
      execute: runId => actions.star(runId)
    },
    {
      id: CommandIDs.renameRun,
      label: trans.__('Rename Run…'),
      caption: trans.__('Set the title of the run'),
      icon: editIcon,
      execute: runId => actions.rename(runId)
    },
    {
      id: CommandIDs.deleteRun,
      label: trans.__('Delete Run…'),
      caption: trans.__('Delete the run with its checkpoints and outputs'),
      icon: deleteIcon,
      fits: row => row.actions.includes('delete'),
      else: trans.__('stop it first'),
      execute: runId => actions.remove(runId)
    }
  ];
}

function looking(services: ICommandServices): IEntry[] {
  const { actions, notebooks } = services;
  return [
    {
      id: CommandIDs.openRunJob,
      label: trans.__('Open Ray Job Page'),
      caption: trans.__(
        'Show the job of its newest attempt in the Ray Dashboard'
      ),
      icon: launchIcon,
      fits: row => row.submission_id !== null,
      else: trans.__('it was not submitted to Ray'),
      execute: runId => actions.openJob(runId)
    },
    {
      id: CommandIDs.openRunFolder,
      label: trans.__('Open Run Folder'),
      caption: trans.__('Show the folder of the run in the file browser'),
      icon: folderIcon,
      execute: runId => actions.openFolder(runId)
    },
    {
      id: CommandIDs.copyRunId,
      label: trans.__('Copy Run Id'),
      caption: trans.__('Copy the id of the run'),
      icon: copyIcon,
      execute: runId => actions.copyId(runId)
    },
    {
      id: CommandIDs.insertRunCode,
      label: trans.__('Insert Code That Attaches to the Run'),
      caption: trans.__(
        'Insert a cell with llmops.attach(…) into the notebook'
      ),
      icon: codeIcon,
      execute: runId => insertCode(attachCode(runId), notebooks)
    }
  ];
}

export function attachCode(runId: string): string {
  return `import llmops_kernel as llmops\n\nrun = llmops.attach("${runId}")\nrun.show()`;
}
