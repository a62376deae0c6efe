import * as React from 'react';

import { X_AXES } from '../../panel/numbers';
import { trans } from '../../trans';
import { CurveChoice } from './curves';

/** What stands on the x axis, in the menu and in the legends. */
export function axisNames(): Record<string, string> {
  return {
    step: trans.__('step'),
    tokens: trans.__('tokens'),
    time: trans.__('hours since the first step'),
    epoch: trans.__('epoch')
  };
}

/**
 * What all charts of the page do: the same choices as in a run's panel, kept with them.
 */
export function ChartTools(props: {
  choice: CurveChoice;
  known: ReadonlySet<string>;
  choose: (part: Partial<CurveChoice>) => void;
  showAll: () => void;
}): JSX.Element {
  const { choice, known, choose } = props;
  const names = axisNames();
  return (
    <div
      className="llmops-compare-tools"
      role="group"
      aria-label={trans.__('Chart settings')}
    >
      <label>
        {trans.__('x axis')}{' '}
        <select
          value={choice.x}
          onChange={event => choose({ x: event.target.value })}
        >
          {X_AXES.map(({ key }) => (
            <option key={key} value={key} disabled={!known.has(key)}>
              {known.has(key)
                ? names[key]
                : trans.__('%1 (not known)', names[key])}
            </option>
          ))}
        </select>
      </label>
      <label
        title={trans.__(
          'Exponential moving average, as in TensorBoard and W&B'
        )}
      >
        {trans.__('smoothing')}{' '}
        <input
          type="range"
          min={0}
          max={0.99}
          step={0.01}
          value={choice.smoothing}
          onChange={event => choose({ smoothing: Number(event.target.value) })}
        />{' '}
        {choice.smoothing ? choice.smoothing.toFixed(2) : trans.__('off')}
      </label>
      <label>
        <input
          type="checkbox"
          checked={choice.log}
          onChange={event => choose({ log: event.target.checked })}
        />{' '}
        {trans.__('log scale')}
      </label>
      <button type="button" onClick={props.showAll}>
        {trans.__('Show all')}
      </button>
    </div>
  );
}
