import { JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IConsoleTracker } from '@jupyterlab/console';
import { INotebookTracker } from '@jupyterlab/notebook';
import {
  codeIcon,
  deleteIcon,
  LabIcon,
  pauseIcon,
  runIcon
} from '@jupyterlab/ui-components';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { argsOf, CATEGORY, CommandIDs } from '../commands';
import { scaleIcon } from '../icons';
import { IClusterModel } from '../tokens';
import { trans } from '../trans';
import { insertCode } from '../ui/code';
import { ClusterInfo } from '../wire';
import { ClusterActions } from './actions';
import { attachCode, whyNot } from './model';
import { ClusterAction } from './requests';

interface IText {
  id: string;
  action: ClusterAction;
  label: string;
  caption: string;
  icon: LabIcon;
}

const CLUSTER = {
  cluster: 'Name of the cluster; without it the user is asked.'
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
      describedBy: argsOf(CLUSTER),
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
    describedBy: argsOf(CLUSTER),
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
    describedBy: argsOf({
      ...CLUSTER,
      hours: { type: 'number', description: '0 ends it.' }
    }),
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
