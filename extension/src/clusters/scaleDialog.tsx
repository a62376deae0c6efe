import { Dialog, ReactWidget, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { trans } from '../trans';
import { ActionPreview, ClusterInfo, ScaleBody } from '../wire';

/** One number that may be changed: a worker group's replicas, or a local cluster's resources. */
interface INumber {
  name: string;
  label: string;
  /** As it is; null when that is not known. */
  now: number | null;
  min: number;
  max: number | null;
  group: boolean;
}

/**
 * Asks for new numbers and shows what they stop. Null when nothing is to be done.
 */
export async function askNumbers(
  info: ClusterInfo,
  preview: ActionPreview
): Promise<ScaleBody | null> {
  const body = new Numbers(numbersOf(info), preview);
  const result = await showDialog({
    title: trans.__('Scale cluster %1', info.name),
    body,
    focusNodeSelector: 'input',
    buttons: [
      Dialog.cancelButton(),
      Dialog.warnButton({ label: trans.__('Scale') })
    ]
  });
  return result.button.accept ? changes(body.numbers, body.wanted) : null;
}

/** What can be scaled: worker groups where there are any. */
export function numbersOf(info: ClusterInfo): INumber[] {
  if (info.groups.length > 0) {
    return info.groups.map(group => ({
      name: group.name,
      label: trans.__('Workers of %1', group.name),
      now: group.replicas,
      min: 0,
      max: group.max_replicas,
      group: true
    }));
  }
  const shared = { max: null, group: false };
  return [
    {
      ...shared,
      name: 'num_cpus',
      label: trans.__('CPUs'),
      now: info.num_cpus,
      min: 1
    },
    {
      ...shared,
      name: 'num_gpus',
      label: trans.__('GPUs'),
      now: info.num_gpus,
      min: 0
    }
  ];
}

/** What is left as it was must not become a number where the template says "all". */
export function changes(
  numbers: readonly INumber[],
  wanted: ReadonlyMap<string, number>
): ScaleBody | null {
  const changed = numbers.flatMap(number => {
    const value = wanted.get(number.name);
    return value === undefined || value === number.now
      ? []
      : [[number, value] as const];
  });
  if (changed.length === 0) {
    return null;
  }
  const named = (group: boolean): Record<string, number> =>
    Object.fromEntries(
      changed
        .filter(([number]) => number.group === group)
        .map(([number, value]) => [number.name, value])
    );
  const workers = named(true);
  return Object.keys(workers).length > 0 ? { workers } : named(false);
}

/** An empty field leaves its number as it is. */
class Numbers extends ReactWidget {
  constructor(
    readonly numbers: readonly INumber[],
    private preview: ActionPreview
  ) {
    super();
    this.addClass('llmops-lab-dialog');
    this.addClass('llmops-clusters-scale');
  }

  readonly wanted = new Map<string, number>();

  protected override render(): JSX.Element {
    const { preview } = this;
    return (
      <>
        <p>{preview.summary}</p>
        {this.numbers.map(number => this.field(number))}
        {preview.stops.length > 0 && (
          <>
            <p>{trans.__('This stops:')}</p>
            <ul>
              {preview.stops.map((line, index) => (
                <li key={index}>{line}</li>
              ))}
            </ul>
          </>
        )}
      </>
    );
  }

  private field(number: INumber): JSX.Element {
    const { name, label, now, min, max } = number;
    return (
      <label key={name}>
        {max === null ? label : trans.__('%1 (at most %2)', label, max)}
        <input
          className="jp-mod-styled"
          type="number"
          min={min}
          max={max ?? undefined}
          step={1}
          defaultValue={now ?? ''}
          onChange={event => {
            const value = event.target.valueAsNumber;
            if (Number.isInteger(value) && value >= min) {
              this.wanted.set(name, value);
            } else {
              this.wanted.delete(name);
            }
          }}
        />
      </label>
    );
  }
}
