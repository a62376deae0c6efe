import { IEditorServices } from '@jupyterlab/codeeditor';
import * as React from 'react';

import { configExtension } from '../configs/editor';
import { check } from '../configs/requests';
import { IQuestion, launch, SubmissionForm } from '../configs/submit';
import { ISubmissions } from '../configs/tokens';
import { ILLMOps } from '../tokens';
import { trans } from '../trans';
import { YamlEditor } from '../ui/yamlEditor';
import { ConfigCheck } from '../wire';

export interface IEdited {
  text: string;
  cluster: string;
}

interface IEditServices {
  llmops: ILLMOps;
  submissions: ISubmissions;
  editors: IEditorServices;
}

/** A run's config, and where it ran. */
interface IEditedRun {
  title: string;
  yaml: string;
  kind: string;
  cluster: string | null;
}

/**
 * A run's whole config in an editor, and the cluster to submit it to; null when cancelled.
 */
export async function editConfig(
  services: IEditServices,
  run: IEditedRun
): Promise<IEdited | null> {
  const { choice, submitter } = services.submissions;
  if (run.cluster && choice.model.find(run.cluster)) {
    choice.pick(run.cluster);
  }
  const { newCluster: onNew } = submitter;
  const question = { title: run.title, choice, onNew };
  const form = new ResubmitForm(question, services, run);
  return launch(question, form, '.cm-content');
}

class ResubmitForm extends SubmissionForm<IEdited> {
  constructor(
    question: IQuestion,
    private services: IEditServices,
    { kind, yaml }: IEditedRun
  ) {
    super(question);
    this.addClass('llmops-resubmit');
    this._kind = kind;
    this._text = yaml;
  }

  override getValue(): IEdited {
    return { text: this._text, cluster: this.cluster };
  }

  protected override check(signal: AbortSignal): Promise<ConfigCheck> {
    const body = { kind: this._kind, text: this._text };
    return check(this.services.llmops, body, signal);
  }

  /** Lab's own editor with what the files of this kind get: completion, hover, squiggles. */
  protected override fields(): JSX.Element {
    const { llmops, editors } = this.services;
    return (
      <YamlEditor
        className="llmops-resubmit-editor"
        editors={editors}
        label={trans.__('Config of the run')}
        text={this._text}
        extension={configExtension({
          llmops,
          kind: this._kind,
          path: () => '',
          isChecked: () => true
        })}
        change={text => {
          this._text = text;
          this.edited();
        }}
      />
    );
  }

  private _kind: string;
  private _text: string;
}
