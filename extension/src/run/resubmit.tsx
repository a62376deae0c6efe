import { Dialog } from '@jupyterlab/apputils';
import { CodeEditor, IEditorServices } from '@jupyterlab/codeeditor';
import { CodeMirrorEditor } from '@jupyterlab/codemirror';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { asTrouble } from '../api';
import { ClusterSelect } from '../configs/chooser';
import { configExtension } from '../configs/editor';
import { Findings } from '../configs/findings';
import { check } from '../configs/requests';
import { ISubmissions } from '../configs/tokens';
import { ILLMOps } from '../tokens';
import { trans } from '../trans';
import { TroubleBox } from '../ui/parts';
import { ConfigCheck, Trouble } from '../wire';

const CHECK_DELAY_MS = 400;

export interface IEdited {
  text: string;
  cluster: string;
}

export interface IEditServices {
  llmops: ILLMOps;
  submissions: ISubmissions;
  editors: IEditorServices;
}

/**
 * A run's whole config in an editor, and the cluster to submit it to; null when cancelled.
 */
export async function editConfig(
  services: IEditServices,
  question: {
    title: string;
    yaml: string;
    kind: string;
    cluster: string | null;
  }
): Promise<IEdited | null> {
  const { submissions } = services;
  const { choice, submitter } = submissions;
  if (question.cluster && choice.model.find(question.cluster)) {
    choice.pick(question.cluster);
  }
  const body = new ResubmitForm(services, question.kind, question.yaml);
  const dialog = new Dialog<IEdited>({
    title: question.title,
    body,
    buttons: [
      Dialog.cancelButton(),
      Dialog.okButton({ label: trans.__('Submit') })
    ],
    focusNodeSelector: '.cm-content'
  });
  dialog.addClass('llmops-resubmit-dialog');
  body.closeDialog = () => dialog.reject();
  const result = await dialog.launch();
  if (body.wantsCluster || (result.button.accept && !choice.name)) {
    submitter.newCluster();
    return null;
  }
  return result.button.accept ? result.value : null;
}

class ResubmitForm extends ReactWidget implements Dialog.IBodyWidget<IEdited> {
  constructor(
    private services: IEditServices,
    private kind: string,
    private text: string
  ) {
    super();
    this.addClass('llmops-resubmit');
    void this.check();
  }

  closeDialog: () => void = () => undefined;
  wantsCluster = false;

  getValue(): IEdited {
    const cluster = this.services.submissions.choice.name ?? '';
    return { text: this.text, cluster };
  }

  override dispose(): void {
    clearTimeout(this._timer);
    this._abort.abort();
    super.dispose();
  }

  protected override render(): JSX.Element {
    const { submissions } = this.services;
    return (
      <>
        <label className="llmops-configs-field">
          <span>{trans.__('Cluster')}</span>
          <ClusterSelect
            choice={submissions.choice}
            onNew={() => {
              this.wantsCluster = true;
              this.closeDialog();
            }}
          />
        </label>
        <ConfigEditor
          {...this.services}
          kind={this.kind}
          text={this.text}
          change={text => this.edit(text)}
        />
        <div className="llmops-configs-checked" aria-live="polite">
          {this._trouble && <TroubleBox trouble={this._trouble} />}
          {!this._trouble && this._check && <Findings check={this._check} />}
        </div>
      </>
    );
  }

  private edit(text: string): void {
    this.text = text;
    clearTimeout(this._timer);
    this._timer = setTimeout(() => void this.check(), CHECK_DELAY_MS);
  }

  private async check(): Promise<void> {
    this._abort.abort();
    const abort = (this._abort = new AbortController());
    const body = { kind: this.kind, text: this.text };
    try {
      const found = await check(this.services.llmops, body, abort.signal);
      this.take(abort, found, null);
    } catch (error) {
      this.take(abort, null, asTrouble(error));
    }
  }

  private take(
    asked: AbortController,
    found: ConfigCheck | null,
    trouble: Trouble | null
  ): void {
    if (!asked.signal.aborted && !this.isDisposed) {
      this._check = found;
      this._trouble = trouble;
      this.update();
    }
  }

  private _check: ConfigCheck | null = null;
  private _trouble: Trouble | null = null;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _abort = new AbortController();
}

/**
 * Lab's own editor with what the files of this kind get: completion, hover, squiggles.
 */
function ConfigEditor(
  props: IEditServices & {
    kind: string;
    text: string;
    change: (text: string) => void;
  }
): JSX.Element {
  const { llmops, editors } = props;
  const host = React.useRef<HTMLDivElement>(null);
  React.useEffect(() => {
    if (!host.current) {
      return;
    }
    const model = new CodeEditor.Model({ mimeType: 'text/x-yaml' });
    model.sharedModel.setSource(props.text);
    const editor = editors.factoryService.newDocumentEditor({
      host: host.current,
      model,
      config: { lineNumbers: true }
    });
    editor.host.setAttribute('aria-label', trans.__('Config of the run'));
    if (editor instanceof CodeMirrorEditor) {
      const isChecked = () => true;
      const assisted = { llmops, kind: props.kind, isChecked };
      editor.injectExtension(configExtension({ ...assisted, path: () => '' }));
    }
    const report = () => props.change(model.sharedModel.getSource());
    model.sharedModel.changed.connect(report);
    return () => {
      model.sharedModel.changed.disconnect(report);
      editor.dispose();
      model.dispose();
    };
  }, []);
  return (
    <div
      ref={host}
      className="llmops-resubmit-editor"
      // Return is a new line here, not the dialog's button.
      onKeyDown={event => event.key === 'Enter' && event.stopPropagation()}
    />
  );
}
