import { PathExt } from '@jupyterlab/coreutils';
import * as React from 'react';

import { planIcon } from '../../icons';
import { trans } from '../../trans';
import { useChanges } from '../../ui/hooks';
import { Busy, TroubleBox } from '../../ui/parts';
import { MainView } from '../../ui/widgets';
import { ConfigPlan } from '../../wire';
import { PlanModel } from './model';

interface IProps {
  model: PlanModel;
}

/**
 * What a training needs: memory by what it is for, speed and cost.
 */
export function PlanView({ model }: IProps): JSX.Element {
  useChanges(model);
  const { plan, trouble, isBusy } = model;
  return (
    <div className="llmops-data llmops-plan" aria-busy={isBusy}>
      <Bar model={model} />
      {isBusy && <Busy text={trans.__('Planning…')} />}
      {trouble && <TroubleBox trouble={trouble} />}
      {plan && !trouble && (
        <div className={isBusy ? 'llmops-data-old' : undefined}>
          <Parts plan={plan} />
          <Facts plan={plan} />
        </div>
      )}
    </div>
  );
}

function Bar({ model }: IProps): JSX.Element {
  return (
    <div className="llmops-data-bar">
      <label>
        {trans.__('Machines of')}{' '}
        <select
          value={model.cluster}
          onChange={event => void model.load(event.target.value)}
        >
          {model.clusters.map(name => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <button type="button" onClick={() => void model.load()}>
        {trans.__('Refresh')}
      </button>
    </div>
  );
}

function Parts({ plan }: { plan: ConfigPlan }): JSX.Element {
  return (
    <section aria-label={trans.__('Memory of one device')}>
      <h3>{trans.__('Memory of one device: %1', plan.device)}</h3>
      <table className="llmops-data-bins llmops-plan-parts">
        <tbody>
          {plan.parts.map(({ label, size, share }) => (
            <tr key={label}>
              <th scope="row">{label}</th>
              <td>{size}</td>
              <td>
                <div style={{ width: `${Math.max(0.5, 100 * share)}%` }} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Facts({ plan }: { plan: ConfigPlan }): JSX.Element {
  return (
    <section aria-label={trans.__('Plan')}>
      <table className="llmops-data-facts">
        <tbody>
          {plan.facts.map(({ label, text, level }) => (
            <tr key={label} data-level={level}>
              <th scope="row">{label}</th>
              <td>
                {level === 'warning' && (
                  <b className="llmops-data-mark">{trans.__('Warning:')} </b>
                )}
                {text.split('\n').map((line, index) => (
                  <div key={index}>{line}</div>
                ))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

export function planWidgetId(path: string): string {
  return `llmops-plan-${path}`;
}

/**
 * The plan of one config in the main area.
 */
export class PlanWidget extends MainView<PlanModel> {
  constructor(model: PlanModel) {
    const { path } = model;
    super(model, <PlanView model={model} />, {
      id: planWidgetId(path),
      icon: planIcon,
      label: trans.__('Plan: %1', PathExt.basename(path)),
      caption: trans.__('Memory, speed and cost of %1', path)
    });
    this.toolbar.hide();
  }
}
