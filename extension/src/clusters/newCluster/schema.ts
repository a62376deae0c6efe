/**
 * The part of JSON schema that the server uses for forms: nested objects, no references.
 */
export interface ISchema {
  type?: string;
  format?: string;
  title?: string;
  description?: string;
  /** What the field takes, in words. */
  expected?: string;
  default?: unknown;
  nullable?: boolean;
  enum?: (string | boolean)[];
  minimum?: number;
  maximum?: number;
  properties?: Record<string, ISchema>;
  items?: ISchema;
  additionalProperties?: boolean | ISchema;
  required?: string[];
  /** Bytes: shown and typed as `2 GiB`. Set by the form, from the field's name. */
  isSize?: boolean;
}

const UNITS: readonly [string, number][] = [
  ['TiB', 2 ** 40],
  ['GiB', 2 ** 30],
  ['MiB', 2 ** 20],
  ['KiB', 2 ** 10]
];

/** A field of bytes is recognised by its name, as everywhere, or by its format. */
export function asField(name: string, schema: ISchema): ISchema {
  return name.endsWith('_bytes') || schema.format === 'byte-size'
    ? { ...schema, isSize: true }
    : schema;
}

/** `2 GiB` for a size that is a round one, else the number of bytes. */
export function sizeText(bytes: number): string {
  const unit = UNITS.find(([, size]) => bytes >= size);
  const amount = unit ? bytes / unit[1] : bytes;
  return unit && Number.isInteger(amount * 100)
    ? `${amount} ${unit[0]}`
    : String(bytes);
}

/** Null for a text that is not a size. */
export function sizeOf(text: string): number | null {
  const found = /^([\d.]+)\s*([KMGT])(?:i?B)?$/i.exec(text.trim());
  const unit = UNITS.find(([name]) => name[0] === found?.[2].toUpperCase());
  const bytes = found && unit ? Math.round(Number(found[1]) * unit[1]) : NaN;
  return Number.isFinite(bytes) ? bytes : null;
}

export type Values = Record<string, unknown>;

/** `undefined` takes the field out, and sections that are empty without it. */
export function withValue(
  values: Values,
  path: readonly string[],
  value: unknown
): Values {
  const [key, ...rest] = path;
  const { [key]: there, ...others } = values;
  if (rest.length === 0) {
    return value === undefined ? others : { ...values, [key]: value };
  }
  const inside = withValue(isSection(there) ? there : {}, rest, value);
  return Object.keys(inside).length === 0
    ? others
    : { ...values, [key]: inside };
}

export function valueAt(values: Values, path: readonly string[]): unknown {
  let found: unknown = values;
  for (const key of path) {
    found = isSection(found) ? found[key] : undefined;
  }
  return found;
}

/** Lists of sections, and Kubernetes' own YAML: no form field can hold them. */
export function isOnlyYaml(schema: ISchema): boolean {
  if (schema.type === 'array') {
    return schema.items?.type === undefined || !isPlain(schema.items);
  }
  const { additionalProperties: free } = schema;
  return (
    schema.type === 'object' &&
    typeof free === 'object' &&
    (free.type === undefined || !isPlain(free))
  );
}

function isPlain(schema: ISchema): boolean {
  return schema.type !== 'object' && schema.type !== 'array';
}

/** How many entries it has. */
export function entries(value: unknown): number {
  if (Array.isArray(value)) {
    return value.length;
  }
  return isSection(value) ? Object.keys(value).length : 0;
}

function isSection(value: unknown): value is Values {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** What a text field shows for a value that was written. */
export function asText(value: unknown, schema: ISchema): string {
  if (value === undefined || value === null) {
    return '';
  }
  if (schema.type === 'array' && Array.isArray(value)) {
    return value.join('\n');
  }
  if (schema.type === 'object' && isSection(value)) {
    return Object.entries(value)
      .map(([name, one]) => `${name}=${String(one)}`)
      .join('\n');
  }
  if (schema.isSize && typeof value === 'number') {
    return sizeText(value);
  }
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/**
 * The value that a text stands for; `undefined` for an empty one. A text that does not fit
 * stays text: the server reports what is wrong with it.
 */
export function fromText(text: string, schema: ISchema): unknown {
  if (text.trim() === '') {
    return undefined;
  }
  if (schema.type === 'array') {
    return lines(text);
  }
  if (schema.type === 'object') {
    return Object.fromEntries(
      lines(text).map(line => {
        const at = line.indexOf('=');
        return at < 0
          ? [line, '']
          : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
      })
    );
  }
  if (schema.type === 'integer' || schema.type === 'number') {
    const value = (schema.isSize && sizeOf(text)) || Number(text);
    return Number.isFinite(value) ? value : text;
  }
  return text;
}

function lines(text: string): string[] {
  return text
    .split('\n')
    .map(line => line.trim())
    .filter(Boolean);
}

/** What a field that is left empty means. */
export function placeholder(schema: ISchema): string {
  const { default: otherwise } = schema;
  if (otherwise === undefined || otherwise === null) {
    return schema.nullable ? 'null' : '';
  }
  return asText(otherwise, schema);
}
