import { Dialog, ReactWidget, showDialog } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { ActionPreview, ClusterInfo, ScaleBody } from '../wire';

/**
 * Asks for new numbers and shows what they stop. Null when nothing is to be done.
 */
export async function askNumbers(
  info: ClusterInfo,
  preview: ActionPreview,
  trans: TranslationBundle
): Promise<ScaleBody | null> {
  const body = new Numbers(info, preview, trans);
  const result = await showDialog({
    title: trans.__('Scale cluster %1', info.name),
    body,
    focusNodeSelector: 'input',
    buttons: [
      Dialog.cancelButton(),
      Dialog.warnButton({ label: trans.__('Scale') })
    ]
  });
  const { num_cpus, num_gpus } = body.wanted;
  // What is left as it was must not become a number where the template says "all".
  const changes = {
    num_cpus: num_cpus === info.num_cpus ? null : num_cpus,
    num_gpus: num_gpus === info.num_gpus ? null : num_gpus
  };
  const isChange = changes.num_cpus !== null || changes.num_gpus !== null;
  return result.button.accept && isChange ? changes : null;
}

/** An empty field leaves its number as it is. */
class Numbers extends ReactWidget {
  constructor(
    private info: ClusterInfo,
    private preview: ActionPreview,
    private trans: TranslationBundle
  ) {
    super();
    this.wanted = { num_cpus: info.num_cpus, num_gpus: info.num_gpus };
    this.addClass('llmops-lab-dialog');
    this.addClass('llmops-clusters-scale');
  }

  wanted: ScaleBody;

  protected override render(): JSX.Element {
    const { preview, trans } = this;
    return (
      <>
        <p>{preview.summary}</p>
        {this.field('num_cpus', trans.__('CPUs'), 1)}
        {this.field('num_gpus', trans.__('GPUs'), 0)}
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

  private field(
    name: 'num_cpus' | 'num_gpus',
    label: string,
    min: number
  ): JSX.Element {
    return (
      <label>
        {label}
        <input
          className="jp-mod-styled"
          type="number"
          min={min}
          step={1}
          defaultValue={this.info[name] ?? ''}
          onChange={event => {
            const value = event.target.valueAsNumber;
            const isGood = Number.isInteger(value) && value >= min;
            this.wanted = { ...this.wanted, [name]: isGood ? value : null };
          }}
        />
      </label>
    );
  }
}
