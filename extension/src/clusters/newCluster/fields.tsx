// Not JupyterLab's FormComponent (rjsf 5.24), which was tried with the same schema. It would lose:
// - what is written but wrong: `num_cpus: two` shows as an empty field, without the value;
// - the defaults: it writes them all into the YAML, or (`skipDefaults`) shows the first choice
//   of a list, which is not the default, and empty fields without a placeholder;
// - Kubernetes' own YAML: it shows the keys of an overlay and no field for their values;
// - entries as lines (NAME=value): each becomes two fields.
// It also needs a validator (ajv, a new dependency) although the server checks already.
import * as React from 'react';

import { ConfigDiagnostic } from '../../wire';
import {
  asField,
  asText,
  entries,
  fromText,
  ISchema,
  isOnlyYaml,
  placeholder,
  sizeText,
  valueAt,
  Values
} from './schema';

const ENTRIES = 'NAME=value, one per line';
const ITEMS = 'one per line';
const SIZE = '2 GiB';

interface IFieldsProps {
  schema: ISchema;
  values: Values;
  diagnostics: readonly ConfigDiagnostic[];
  disabled: boolean;
  change: (path: readonly string[], value: unknown) => void;
  path?: readonly string[];
}

/**
 * One field for each property of the schema; sections are groups.
 */
export function Fields(props: IFieldsProps): JSX.Element {
  const { schema, path = [] } = props;
  return (
    <>
      {Object.entries(schema.properties ?? {}).map(([name, field]) => {
        const place = [...path, name];
        return field.properties ? (
          <fieldset key={name} className="llmops-form-section">
            <legend title={field.description}>{name}</legend>
            <Fields {...props} schema={field} path={place} />
          </fieldset>
        ) : (
          <Field
            key={name}
            {...props}
            schema={asField(name, field)}
            path={place}
          />
        );
      })}
    </>
  );
}

function Field(props: IFieldsProps & { path: readonly string[] }): JSX.Element {
  const { schema, path, diagnostics } = props;
  const name = path.join('.');
  const id = `llmops-form-${name.replace(/\W/g, '-')}`;
  const wrong = diagnostics.filter(({ path: at }) => concerns(at, name));
  return (
    <div className="llmops-form-field" data-field={name}>
      <label htmlFor={id}>{path[path.length - 1]}</label>
      <Input {...props} id={id} isWrong={wrong.length > 0} />
      {schema.isSize && <Bytes value={valueAt(props.values, path)} />}
      {wrong.map((item, index) => (
        <div
          key={index}
          id={index === 0 ? `${id}-wrong` : undefined}
          className="llmops-form-wrong"
        >
          {item.message}
          {item.suggestion && `; ${item.suggestion}`}
        </div>
      ))}
      {schema.description && (
        <div id={`${id}-about`} className="llmops-form-about">
          {schema.description.replace(/`/g, '')}
        </div>
      )}
    </div>
  );
}

/** The size as the YAML has it, where the field shows another unit. */
function Bytes({ value }: { value: unknown }): JSX.Element | null {
  return typeof value === 'number' && sizeText(value) !== String(value) ? (
    <div className="llmops-form-about">{`${value.toLocaleString('en-US')} bytes`}</div>
  ) : null;
}

/** A problem of a list's item is shown at the list. */
export function concerns(path: string, field: string): boolean {
  return (
    path === field ||
    path.startsWith(`${field}.`) ||
    path.startsWith(`${field}[`)
  );
}

interface IInputProps extends IFieldsProps {
  path: readonly string[];
  id: string;
  isWrong: boolean;
}

function Input(props: IInputProps): JSX.Element {
  const { schema, path, values, id, isWrong, disabled } = props;
  const value = valueAt(values, path);
  const common = {
    id,
    disabled,
    'aria-invalid': isWrong,
    'aria-describedby': isWrong ? `${id}-wrong` : `${id}-about`
  };
  if (isOnlyYaml(schema)) {
    const count = entries(value);
    const there = count === 1 ? '1 entry' : `${count || 'no'} entries`;
    return (
      <output {...common} className="llmops-form-yaml-only">
        {`${there}; edit in the YAML text`}
      </output>
    );
  }
  if (schema.type === 'boolean' || schema.enum) {
    return <Choice {...props} common={common} value={value} />;
  }
  return <Typed {...props} common={common} value={value} />;
}

type Common = Record<string, string | boolean>;

/** The empty choice leaves the default, which it names. */
function Choice(
  props: IInputProps & { common: Common; value: unknown }
): JSX.Element {
  const { schema, path, change, common, value } = props;
  const choices = schema.enum ?? [true, false];
  const isListed = value === undefined || choices.some(one => one === value);
  return (
    <select
      {...common}
      value={value === undefined ? '' : String(value)}
      onChange={event => {
        const text = event.target.value;
        const chosen = choices.find(one => String(one) === text);
        change(path, text === '' ? undefined : chosen);
      }}
    >
      <option value="">{`default (${placeholder(schema)})`}</option>
      {!isListed && <option value={String(value)}>{String(value)}</option>}
      {choices.map(one => (
        <option key={String(one)} value={String(one)}>
          {String(one)}
        </option>
      ))}
    </select>
  );
}

/** Keeps what is typed while it stands for the same value: `1.` on the way to `1.5`. */
function Typed(
  props: IInputProps & { common: Common; value: unknown }
): JSX.Element {
  const { schema, path, common, value, change } = props;
  const shown = asText(value, schema);
  const [typed, setTyped] = React.useState(shown);
  const isSame = asText(fromText(typed, schema), schema) === shown;
  const text = {
    ...common,
    className: 'jp-mod-styled',
    spellCheck: false,
    title: schema.expected,
    value: isSame ? typed : shown,
    onChange: (event: { target: { value: string } }) => {
      setTyped(event.target.value);
      change(path, fromText(event.target.value, schema));
    }
  };
  if (schema.type === 'object') {
    return <textarea {...text} rows={2} placeholder={ENTRIES} />;
  }
  if (schema.type === 'array') {
    return <textarea {...text} rows={2} placeholder={ITEMS} />;
  }
  const isNumber = schema.type === 'integer' || schema.type === 'number';
  return (
    <input
      {...text}
      type="text"
      inputMode={isNumber ? 'decimal' : 'text'}
      placeholder={schema.isSize ? SIZE : placeholder(schema)}
    />
  );
}
