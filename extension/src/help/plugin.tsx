import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { Dialog, ICommandPalette, ReactWidget } from '@jupyterlab/apputils';
import { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import * as React from 'react';

import { argsOf, CATEGORY, CommandIDs } from '../commands';
import { ILLMOps } from '../tokens';
import { trans } from '../trans';

/**
 * Where to begin, and what the words mean: in the Help menu.
 */
export const helpPlugin: JupyterFrontEndPlugin<void> = {
  id: '@llmops/lab:help',
  description: 'First steps and words of LLM training, in the Help menu.',
  autoStart: true,
  // For the language of its texts.
  requires: [ILLMOps],
  optional: [ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    _: ILLMOps,
    palette: ICommandPalette | null
  ) => {
    app.commands.addCommand(CommandIDs.help, {
      label: trans.__('LLM Training: Getting Started and Glossary'),
      caption: trans.__('Where to begin, and what the words mean'),
      describedBy: argsOf(),
      execute: async () => {
        const dialog: Dialog<unknown> = new Dialog({
          title: trans.__('LLM training on Ray'),
          body: ReactWidget.create(
            <Help
              steps={steps()}
              words={words()}
              run={step => {
                dialog.dispose();
                void app.commands.execute(step.command, step.args);
              }}
            />
          ),
          buttons: [Dialog.okButton({ label: trans.__('Close') })]
        });
        await dialog.launch();
      }
    });
    palette?.addItem({ command: CommandIDs.help, category: CATEGORY });
  }
};

function Help(props: {
  steps: readonly IStep[];
  words: readonly (readonly [string, string])[];
  run: (step: IStep) => void;
}): JSX.Element {
  return (
    <div className="llmops-help">
      <ol>
        {props.steps.map(step => (
          <li key={step.label}>
            <button
              type="button"
              className="llmops-runs-link"
              onClick={() => props.run(step)}
            >
              {step.label}
            </button>{' '}
            {step.about}
          </li>
        ))}
      </ol>
      <dl>
        {props.words.map(([word, meaning]) => (
          <React.Fragment key={word}>
            <dt>{word}</dt>
            <dd>{meaning}</dd>
          </React.Fragment>
        ))}
      </dl>
    </div>
  );
}

/** One thing to do, in the order in which a new user does them. */
interface IStep {
  label: string;
  about: string;
  command: string;
  args?: ReadonlyPartialJSONObject;
}

export function steps(): IStep[] {
  return [
    {
      label: trans.__('Start a cluster'),
      about: trans.__(
        'on this machine, or on Kubernetes. It keeps running between runs.'
      ),
      command: CommandIDs.newCluster
    },
    {
      label: trans.__('Write a training config'),
      about: trans.__(
        'with every field explained. In a terminal, llmops init --example chat writes one with its data.'
      ),
      command: CommandIDs.newConfig
    },
    {
      label: trans.__('Preview its data'),
      about: trans.__(
        'as the model will see it, before anything starts: Data, above the editor of the config.'
      ),
      command: CommandIDs.showData
    },
    {
      label: trans.__('Submit it'),
      about: trans.__(
        'and watch loss and MFU; change one thing, and submit again.'
      ),
      command: CommandIDs.submitConfig
    },
    {
      label: trans.__('Compare runs'),
      about: trans.__('that you select in the list of runs.'),
      command: CommandIDs.showRuns
    }
  ];
}

/** The words of the screens, as docs/start/words.md explains them. */
export function words(): [string, string][] {
  return [
    [
      trans.__('cluster'),
      trans.__('a Ray cluster, described by a cluster template')
    ],
    [
      trans.__('run'),
      trans.__(
        'one job from submit to its last output; a retry adds an attempt'
      )
    ],
    [
      trans.__('workspace'),
      trans.__('the folder of code and configs that travels with a submission')
    ],
    [trans.__('step'), trans.__('one optimizer step, counted from 1')],
    [
      trans.__('global batch size'),
      trans.__(
        'sequences of one step: micro batch size x gradient accumulation steps x workers'
      )
    ],
    [
      trans.__('MFU'),
      trans.__(
        'model FLOPs utilization: the share of the device\u2019s peak that went into needed arithmetic'
      )
    ],
    [
      trans.__('warm'),
      trans.__(
        'a process that was forked with its libraries loaded; any other is cold'
      )
    ]
  ];
}
