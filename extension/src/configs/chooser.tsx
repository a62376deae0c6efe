import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import * as React from 'react';

import { trans } from '../trans';
import { ClusterChoice, shownAs } from './choice';

/**
 * A list of the clusters with their states; without any, a button that makes one.
 */
export function ClusterSelect(props: {
  choice: ClusterChoice;
  onNew: () => void;
  className?: string;
}): JSX.Element {
  const { choice, onNew, className } = props;
  return (
    <UseSignal signal={choice.changed}>
      {() => {
        const { clusters, isKnown } = choice.model;
        if (clusters.length === 0) {
          return isKnown ? (
            <button
              type="button"
              className="llmops-configs-new"
              onClick={onNew}
              title={trans.__('There is no cluster yet: create one')}
            >
              {trans.__('New cluster…')}
            </button>
          ) : (
            <span className="llmops-configs-wait" role="status">
              {trans.__('Looking for clusters…')}
            </span>
          );
        }
        return (
          <select
            className={className}
            aria-label={trans.__('Cluster to submit to')}
            title={trans.__('Cluster to submit to')}
            value={choice.name ?? ''}
            onChange={event => choice.pick(event.target.value)}
          >
            {clusters.map(row => (
              <option key={row.name} value={row.name}>
                {shownAs(row)}
              </option>
            ))}
          </select>
        );
      }}
    </UseSignal>
  );
}

/**
 * The chooser in an editor's toolbar.
 */
export class ClusterChooser extends ReactWidget {
  constructor(
    private choice: ClusterChoice,
    private onNew: () => void
  ) {
    super();
    this.addClass('llmops-configs-chooser');
  }

  protected override render(): JSX.Element {
    const { choice, onNew } = this;
    return <ClusterSelect choice={choice} onNew={onNew} />;
  }
}
