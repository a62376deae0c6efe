import { JupyterFrontEnd } from '@jupyterlab/application';
import { Clipboard, ICommandPalette, Notification } from '@jupyterlab/apputils';
import { IConsoleTracker } from '@jupyterlab/console';
import { INotebookTracker, NotebookActions } from '@jupyterlab/notebook';
import {
  codeIcon,
  deleteIcon,
  LabIcon,
  pauseIcon,
  runIcon
} from '@jupyterlab/ui-components';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { CATEGORY, CommandIDs } from '../commands';
import { IClusterModel } from '../tokens';
import { trans } from '../trans';
import { ClusterInfo } from '../wire';
import { ClusterActions } from './actions';
import { scaleIcon } from './icons';
import { attachCode, whyNot } from './model';
import { ClusterAction } from './requests';

interface IText {
  id: string;
  action: ClusterAction;
  label: string;
  caption: string;
  icon: LabIcon;
}

const DESCRIBED_BY = {
  args: {
    type: 'object',
    properties: {
      cluster: {
        type: 'string',
        description: 'Name of the cluster; without it the user is asked.'
      }
    }
  }
};

/**
 * Everything that can be done to a cluster, as commands with `{cluster}`.
 */
export function addActionCommands(options: {
  app: JupyterFrontEnd;
  model: IClusterModel;
  actions: ClusterActions;
  notebooks: INotebookTracker | null;
  consoles: IConsoleTracker | null;
  palette: ICommandPalette | null;
}): void {
  const { app, model, actions, notebooks, consoles, palette } = options;
  for (const text of texts()) {
    app.commands.addCommand(text.id, {
      label: text.label,
      caption: args => reason(model, text, args) || text.caption,
      icon: text.icon,
      describedBy: DESCRIBED_BY,
      isEnabled: args => reason(model, text, args) === '',
      execute: async args => {
        const name = named(args) ?? (await actions.choose(text.action));
        return name === null ? undefined : actions.run(text.action, name);
      }
    });
    palette?.addItem({ command: text.id, category: CATEGORY });
  }
  addKeepCommand(options);
  app.commands.addCommand(CommandIDs.insertClusterCode, {
    label: trans.__('Insert Code That Attaches to a Cluster'),
    caption: trans.__(
      'Insert llmops.cluster(…) into the notebook or console; copy it if none is open'
    ),
    icon: codeIcon,
    describedBy: DESCRIBED_BY,
    isEnabled: () => model.clusters.length > 0,
    execute: async args => {
      const name = named(args) ?? (await actions.choose(''));
      if (name !== null) {
        const prompt = consoles?.currentWidget?.console.promptCell;
        if (prompt && app.shell.currentWidget === consoles?.currentWidget) {
          prompt.model.sharedModel.setSource(attachCode(name));
        } else {
          insertCode(attachCode(name), notebooks);
        }
      }
    }
  });
  palette?.addItem({
    command: CommandIDs.insertClusterCode,
    category: CATEGORY
  });
  model.changed.connect(() => {
    texts().forEach(({ id }) => app.commands.notifyCommandChanged(id));
  });
}

/** `hours` are 2 unless they are given; 0 takes an earlier wish back. */
function addKeepCommand(options: {
  app: JupyterFrontEnd;
  model: IClusterModel;
  actions: ClusterActions;
}): void {
  const { app, model, actions } = options;
  const canKeep = (name: string): boolean => {
    const info = model.find(name)?.info;
    return info !== undefined && info !== null && hasEnd(info);
  };
  app.commands.addCommand(CommandIDs.keepCluster, {
    label: args =>
      args.hours === 0
        ? trans.__('Stop Keeping Cluster')
        : trans.__('Keep Cluster for %1 h', Number(args.hours ?? 2)),
    caption: trans.__(
      'The idle guard does not suspend the cluster during this time'
    ),
    describedBy: {
      args: {
        type: 'object',
        properties: {
          ...DESCRIBED_BY.args.properties,
          hours: { type: 'number', description: '0 ends it.' }
        }
      }
    },
    isEnabled: args => canKeep(named(args) ?? ''),
    isVisible: args => canKeep(named(args) ?? ''),
    execute: args => {
      const name = named(args);
      return name === null
        ? undefined
        : actions.keep(name, Number(args.hours ?? 2));
    }
  });
}

function hasEnd(info: ClusterInfo): boolean {
  return [info.suspends_at_s, info.ends_at_s, info.kept_until_s].some(
    moment => moment !== null
  );
}

function texts(): IText[] {
  return [
    {
      id: CommandIDs.resumeCluster,
      action: 'resume',
      label: trans.__('Resume Cluster'),
      caption: trans.__('Start it again as it was defined'),
      icon: runIcon
    },
    {
      id: CommandIDs.suspendCluster,
      action: 'suspend',
      label: trans.__('Suspend Cluster…'),
      caption: trans.__('Stop its processes and keep its definition'),
      icon: pauseIcon
    },
    {
      id: CommandIDs.scaleCluster,
      action: 'scale',
      label: trans.__('Scale Cluster…'),
      caption: trans.__('Change its number of CPUs, GPUs or workers'),
      icon: scaleIcon
    },
    {
      id: CommandIDs.deleteCluster,
      action: 'delete',
      label: trans.__('Delete Cluster…'),
      caption: trans.__('Stop it and delete its definition; runs are kept'),
      icon: deleteIcon
    }
  ];
}

function named(args: ReadonlyPartialJSONObject): string | null {
  return typeof args.cluster === 'string' ? args.cluster : null;
}

/** Without a name it is enough that it fits one of the clusters. */
function reason(
  model: IClusterModel,
  { action }: IText,
  args: ReadonlyPartialJSONObject
): string {
  const name = named(args);
  if (name !== null) {
    return whyNot(model.find(name), action);
  }
  const reasons = model.clusters.map(row => whyNot(row, action));
  return reasons.includes('') ? '' : (reasons[0] ?? 'There is no cluster');
}

/** Below the active cell of the notebook that was used last; else on the clipboard. */
function insertCode(code: string, notebooks: INotebookTracker | null): void {
  const notebook = notebooks?.currentWidget?.content;
  if (notebook?.model && !notebook.model.readOnly) {
    NotebookActions.insertBelow(notebook);
    notebook.activeCell?.model.sharedModel.setSource(code);
    return;
  }
  Clipboard.copyToSystem(code);
  Notification.info(trans.__('No notebook is open: the code was copied.'), {
    autoClose: 4000
  });
}
