import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { Dialog, ICommandPalette, ReactWidget } from '@jupyterlab/apputils';
import * as React from 'react';

import { CATEGORY, CommandIDs } from '../commands';
import { ILLMOps } from '../tokens';
import { trans } from '../trans';
import { IStep, steps, words } from './words';

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
      describedBy: { args: { type: 'object', properties: {} } },
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
