import * as React from 'react';

import { trans } from '../trans';
import { COLOURS } from './colours';
import { IRunTableProps } from './props';

const MOST_COMPARED = 8;

/**
 * What can be done to the selected runs.
 */
export function Bulk(props: IRunTableProps): JSX.Element | null {
  const { model, actions } = props;
  const runIds = [...model.selected];
  const count = runIds.length;
  if (count === 0) {
    return null;
  }
  const canCompare = count >= 2 && count <= MOST_COMPARED;
  return (
    <div
      className="llmops-runtable-bulk"
      role="toolbar"
      aria-label={trans.__('Actions on the selected runs')}
    >
      <span role="status">{trans.__('%1 selected', count)}</span>
      <Action
        text={trans.__('Compare')}
        title={
          canCompare
            ? trans.__('Compare %1 runs', count)
            : trans.__('Select 2 to %1 runs to compare them', MOST_COMPARED)
        }
        disabled={!canCompare}
        act={() => actions.compare(runIds)}
      />
      <Action
        text={trans.__('Tags…')}
        title={trans.__('Add or remove tags')}
        act={() => void actions.tag(runIds)}
      />
      <select
        className="jp-mod-styled"
        value=""
        aria-label={trans.__('Colour of the selected runs')}
        onChange={event => void actions.colour(runIds, event.target.value)}
      >
        <option value="" disabled>
          {trans.__('Colour…')}
        </option>
        {Object.keys(COLOURS).map(name => (
          <option key={name}>{name}</option>
        ))}
        <option value="none">{trans.__('no colour')}</option>
      </select>
      <Action
        text={trans.__('Stop…')}
        title={trans.__('Stop those that have not ended')}
        act={() => void actions.stop(runIds)}
      />
      <Action
        text={trans.__('Delete…')}
        title={trans.__('Shows first what will be lost')}
        act={() => void actions.remove(runIds)}
      />
      <Action
        text={trans.__('Select all %1', model.answer?.matched ?? 0)}
        title={trans.__('Every run that matches, in sight or not')}
        act={() => void model.selectAll()}
      />
      <Action
        text={trans.__('Clear')}
        title={trans.__('Clear the selection')}
        act={() => model.clearSelection()}
      />
    </div>
  );
}

function Action(props: {
  text: string;
  title: string;
  act: () => void;
  disabled?: boolean;
}): JSX.Element {
  return (
    <button
      type="button"
      className="jp-mod-styled"
      title={props.title}
      disabled={props.disabled}
      onClick={props.act}
    >
      {props.text}
    </button>
  );
}
