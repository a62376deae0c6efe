import { UseSignal } from '@jupyterlab/apputils';
import { addIcon, closeIcon, MenuSvg } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { CommandIDs } from '../commands';
import { pages } from '../dashboard/pages';
import { clustersIcon } from '../icons';
import { IClusterModel, IOperations } from '../tokens';
import { trans } from '../trans';
import { moveByArrows, useNow, useOneTabStop } from '../ui/hooks';
import { openAt, rowMenu } from '../ui/menu';
import { Busy, EmptyState, IconButton, TroubleBox } from '../ui/parts';
import { SidePanel } from '../ui/widgets';
import { OperationInfo } from '../wire';
import { failures } from './model';
import { Row } from './row';

const MENU = [
  CommandIDs.openDashboard,
  CommandIDs.insertClusterCode,
  CommandIDs.attachKernels,
  '',
  CommandIDs.resumeCluster,
  CommandIDs.suspendCluster,
  CommandIDs.scaleCluster,
  CommandIDs.keepCluster,
  '',
  CommandIDs.deleteCluster
];

interface IProps {
  model: IClusterModel;
  operations: IOperations;
  commands: CommandRegistry;
}

/**
 * The clusters in the side bar.
 */
export class ClusterPanel extends SidePanel {
  constructor(private props: IProps) {
    super('llmops-clusters', clustersIcon, trans.__('Ray Clusters'));
  }

  protected override render(): JSX.Element {
    const { model, operations } = this.props;
    return (
      <UseSignal signal={model.changed}>
        {() => (
          <UseSignal signal={operations.changed}>
            {() => <Clusters {...this.props} />}
          </UseSignal>
        )}
      </UseSignal>
    );
  }
}

function Clusters(props: IProps): JSX.Element {
  const { model, commands } = props;
  return (
    <>
      <div className="llmops-clusters-head">
        <h2>{trans.__('Ray Clusters')}</h2>
        <IconButton
          icon={addIcon}
          label={trans.__('New cluster…')}
          onClick={() => void commands.execute(CommandIDs.newCluster)}
        />
      </div>
      {model.trouble && (
        <TroubleBox kind="warn" trouble={model.trouble}>
          {model.isKnown && (
            <div>{trans.__('The data shown may be out of date.')}</div>
          )}
        </TroubleBox>
      )}
      <Failures {...props} />
      <List {...props} />
    </>
  );
}

function Failures({ model, operations }: IProps): JSX.Element {
  const [closed, setClosed] = React.useState<ReadonlySet<string>>(new Set());
  const close = (operation: OperationInfo) =>
    setClosed(new Set([...closed, operation.id]));
  return (
    <>
      {failures(operations.all, closed, model.clusters).map(
        operation =>
          operation.trouble && (
            <div className="llmops-clusters-failure" key={operation.id}>
              <TroubleBox
                trouble={{
                  ...operation.trouble,
                  message: `${operation.kind} ${operation.what}: ${operation.trouble.message}`
                }}
              />
              <IconButton
                icon={closeIcon}
                label={trans.__('Close this message')}
                onClick={() => close(operation)}
              />
            </div>
          )
      )}
    </>
  );
}

function List({ model, commands }: IProps): JSX.Element {
  const nowS = useNow() + model.aheadS;
  const { ref, onFocus } = useOneTabStop('.llmops-clusters-row');
  if (!model.isKnown) {
    return <Busy text={trans.__('Looking for clusters…')} />;
  }
  if (model.clusters.length === 0) {
    return (
      <EmptyState title={trans.__('No cluster yet')}>
        <p>
          {trans.__(
            'A Ray cluster keeps running and accepts one run after another. It can be started here, by llmops.up() in a notebook, or by llmops up in a terminal.'
          )}
        </p>
        <button
          type="button"
          className="jp-mod-styled jp-mod-accept"
          onClick={() => void commands.execute(CommandIDs.newCluster)}
        >
          {trans.__('New cluster…')}
        </button>
      </EmptyState>
    );
  }
  return (
    <ul
      className="llmops-clusters-list"
      aria-label={trans.__('Ray clusters')}
      ref={ref as React.RefObject<HTMLUListElement>}
      onFocus={onFocus}
      onKeyDown={event => moveByArrows(event, '.llmops-clusters-open')}
    >
      {model.clusters.map(row => (
        <Row
          key={row.name}
          row={row}
          nowS={nowS}
          execute={(command, args) => void commands.execute(command, args)}
          menu={(cluster, event) => openMenu({ commands, cluster }, event)}
        />
      ))}
    </ul>
  );
}

/** With the pages of its dashboard below it. */
function openMenu(
  options: {
    commands: CommandRegistry;
    cluster: string;
  },
  event: React.MouseEvent
): void {
  const { commands, cluster } = options;
  const menu = rowMenu(commands, MENU, { cluster });
  const submenu = new MenuSvg({ commands });
  submenu.title.label = trans.__('Pages of the Ray Dashboard');
  pages().forEach(({ name: page }) =>
    submenu.addItem({
      command: CommandIDs.openDashboard,
      args: { cluster, page }
    })
  );
  menu.insertItem(1, { type: 'submenu', submenu });
  openAt(menu, event, submenu);
}
