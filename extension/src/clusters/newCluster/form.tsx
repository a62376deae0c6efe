import { ReactWidget, UseSignal } from '@jupyterlab/apputils';
import { IEditorServices } from '@jupyterlab/codeeditor';
import * as React from 'react';

import { trans } from '../../trans';
import { Busy, TroubleBox } from '../../ui/parts';
import { YamlEditor } from '../../ui/yamlEditor';
import { ClusterRow, ConfigDiagnostic } from '../../wire';
import { Fields } from './fields';
import { NewClusterModel } from './model';

interface IFormProps {
  model: NewClusterModel;
  editors: IEditorServices;

  /** The cluster that has the name which the text gives, if there is one. */
  existing: () => ClusterRow | null;
  start: () => void;
  save: () => void;
}

/**
 * A new cluster: the fields of a template at the left, the YAML that they make at the right.
 */
export class NewClusterForm extends ReactWidget {
  constructor(private props: IFormProps) {
    super();
    this.addClass('llmops-form');
  }

  protected override render(): JSX.Element {
    return (
      <UseSignal signal={this.props.model.changed}>
        {() => <Form {...this.props} />}
      </UseSignal>
    );
  }
}

function Form(props: IFormProps): JSX.Element {
  const { model } = props;
  const { schema, trouble } = model;
  if (!schema) {
    return trouble ? (
      <TroubleBox trouble={trouble}>
        <button
          type="button"
          className="jp-mod-styled"
          onClick={() => void model.load()}
        >
          {trans.__('Try again')}
        </button>
      </TroubleBox>
    ) : (
      <Busy text={trans.__('Reading the cluster templates…')} />
    );
  }
  return (
    <>
      <Choose {...props} />
      {trouble && <TroubleBox trouble={trouble} kind="warn" />}
      <div className="llmops-form-sides">
        <form
          className="llmops-form-fields"
          aria-label={trans.__('Fields of the cluster template')}
          onSubmit={event => event.preventDefault()}
        >
          {model.isOwnText && (
            <p role="status">
              {trans.__(
                'The YAML was edited: change values there. "Discard changes" brings the fields back.'
              )}
            </p>
          )}
          <Fields
            schema={schema}
            values={model.values ?? {}}
            diagnostics={model.check?.diagnostics ?? []}
            disabled={model.values === null || model.isOwnText}
            change={(path, value) => model.setValue(path, value)}
          />
        </form>
        <div className="llmops-form-text">
          <div className="llmops-form-hint">
            {trans.__(
              'What the fields make, and what is started. Escape, then Tab leaves the editor.'
            )}
          </div>
          <YamlEditor
            className="llmops-form-yaml"
            editors={props.editors}
            wraps
            text={model.text}
            label={trans.__('YAML of the cluster template')}
            change={text => model.setText(text)}
          />
          <Said {...props} />
        </div>
      </div>
      <Existing {...props} />
      <Buttons {...props} />
    </>
  );
}

function Choose({ model }: IFormProps): JSX.Element {
  const index = model.template ? model.templates.indexOf(model.template) : -1;
  return (
    <div className="llmops-form-choose">
      <label htmlFor="llmops-form-template">{trans.__('Template')}</label>
      <select
        id="llmops-form-template"
        value={index}
        onChange={event => {
          const chosen = model.templates[Number(event.target.value)];
          void model.choose(chosen);
        }}
      >
        {model.templates.map((template, at) => (
          <option key={at} value={at}>
            {template.path
              ? `${template.name} (${template.path})`
              : template.name}
          </option>
        ))}
      </select>
      {model.isChanged && (
        <button
          type="button"
          className="jp-mod-styled"
          title={trans.__('Show the template again as it is saved')}
          onClick={() => void model.discard()}
        >
          {trans.__('Discard changes')}
        </button>
      )}
    </div>
  );
}

/** The same name is not a second cluster: said before it is started. */
function Existing({ existing }: IFormProps): JSX.Element | null {
  const row = existing();
  return row ? (
    <p className="llmops-form-exists" role="status">
      {trans.__(
        'A cluster named %1 already exists (%2). Start attaches to it or starts it again; it does not make a second one. For a new cluster, change the name.',
        row.name,
        row.info?.state ?? '–'
      )}
    </p>
  ) : null;
}

/** What the server says of the text: mistakes with their lines, or what it works out to. */
function Said({ model }: IFormProps): JSX.Element {
  const { check } = model;
  const diagnostics = check?.diagnostics ?? [];
  return (
    <div className="llmops-form-said" role="status" aria-live="polite">
      {diagnostics.length > 0 && (
        <ul>
          {diagnostics.map((item, index) => (
            <li key={index} data-severity={item.severity}>
              {problemText(item)}
            </li>
          ))}
        </ul>
      )}
      {check?.effect.map((line, index) => (
        <p key={index}>{line}</p>
      ))}
      {model.losesEnv && (
        <p>
          {trans.__(
            'env is not kept on disk: save this as a template file, so that a resumed cluster has it again.'
          )}
        </p>
      )}
    </div>
  );
}

function problemText(item: ConfigDiagnostic): string {
  const hint = item.suggestion ? `; ${item.suggestion}` : '';
  return trans.__(
    'Line %1: %2 %3',
    item.line,
    item.path,
    `${item.message}${hint}`
  );
}

function Buttons({ model, start, save }: IFormProps): JSX.Element {
  return (
    <div className="llmops-form-buttons">
      {model.isBusy && <Busy text={trans.__('Checking…')} />}
      <button type="button" className="jp-mod-styled" onClick={save}>
        {trans.__('Save as template file…')}
      </button>
      <button
        type="button"
        className="jp-mod-styled jp-mod-accept"
        disabled={!model.canStart}
        title={
          model.canStart
            ? trans.__('Start the cluster; this form closes')
            : trans.__('Correct the mistakes first')
        }
        onClick={start}
      >
        {trans.__('Start')}
      </button>
    </div>
  );
}
