import { describe, expect, it, vi } from 'vitest';

import { ConfigCheck, TemplateInfo } from '../../wire';
import { concerns } from '../newCluster/fields';
import { Drafts, IFormRequests, NewClusterModel } from '../newCluster/model';
import {
  asField,
  asText,
  entries,
  fromText,
  ISchema,
  isOnlyYaml,
  placeholder,
  sizeOf,
  sizeText,
  valueAt,
  Values,
  withValue
} from '../newCluster/schema';

const SCHEMA: ISchema = { type: 'object', properties: {} };

function template(values: Partial<TemplateInfo> = {}): TemplateInfo {
  return { name: 'local', path: null, text: 'a: 1', problems: [], ...values };
}

/** The text is the JSON of its values, so that both shapes are easy to compare. */
function check(text: string): ConfigCheck {
  let values: Values | null = null;
  try {
    values = text === 'a: 1' ? { a: 1 } : (JSON.parse(text) as Values);
  } catch {
    values = null;
  }
  const valid = values !== null && values.a !== 'bad';
  return {
    kind: 'cluster',
    valid,
    effect: [],
    name: null,
    values,
    diagnostics: [],
    warnings: [],
    checked: []
  };
}

function requests(): IFormRequests {
  return {
    templates: vi.fn(async () => [
      template(),
      template({ name: 'big', path: 'cluster_templates/big.yaml' })
    ]),
    schema: vi.fn(async () => SCHEMA),
    check: vi.fn(async (text: string) => check(text)),
    render: vi.fn(async (data: Values) => JSON.stringify(data))
  };
}

function memory(): Pick<Storage, 'getItem' | 'setItem'> {
  const kept = new Map<string, string>();
  return {
    getItem: key => kept.get(key) ?? null,
    setItem: (key, value) => void kept.set(key, value)
  };
}

async function loaded(asked = requests(), preferred = '', kept = memory()) {
  const model = new NewClusterModel(asked, new Drafts(kept));
  await model.load(preferred);
  return { model, asked };
}

describe('NewClusterModel', () => {
  it('begins with the first template, or the one that was asked for', async () => {
    const { model } = await loaded();
    expect(model.template?.name).toBe('local');
    expect(model.values).toEqual({ a: 1 });
    expect(model.canStart).toBe(true);
    expect(model.start).toEqual({ template: 'local' });
    const { model: other } = await loaded(
      requests(),
      'cluster_templates/big.yaml'
    );
    expect(other.start).toEqual({ path: 'cluster_templates/big.yaml' });
  });

  it('puts a field into the text', async () => {
    const { model, asked } = await loaded();
    model.setValue(['warm', 'enabled'], false);
    expect(model.canStart).toBe(false);
    await model.settle();
    expect(asked.render).toHaveBeenCalledWith({
      a: 1,
      warm: { enabled: false }
    });
    expect(model.text).toBe('{"a":1,"warm":{"enabled":false}}');
    expect(model.canStart).toBe(true);
    expect(model.start).toEqual({ yaml: model.text });
  });

  it('has no values for fields before the template is read', async () => {
    const model = new NewClusterModel(requests(), new Drafts(memory()));
    const seen: (Values | null)[] = [];
    model.changed.connect(() => {
      if (model.schema) {
        seen.push(model.values);
      }
    });
    await model.load();
    expect(seen[0]).toBeNull();
    expect(seen.at(-1)).toEqual({ a: 1 });
  });

  it('lets no field write over a text that was edited, until it is discarded', async () => {
    const { model } = await loaded();
    model.setText('{"b": 2}');
    await model.settle();
    expect(model.isOwnText).toBe(true);
    expect(model.values).toEqual({ b: 2 });
    model.setValue(['b'], 3);
    expect(model.isBusy).toBe(false);
    expect(model.text).toBe('{"b": 2}');
    await model.discard();
    model.setValue(['b'], 3);
    await model.settle();
    expect(model.text).toBe('{"a":1,"b":3}');
    expect(model.isOwnText).toBe(false);
  });

  it('starts no text that cannot be read or is wrong', async () => {
    const { model } = await loaded();
    model.setText('{"b": ');
    await model.settle();
    expect(model.values).toBeNull();
    expect(model.canStart).toBe(false);
    model.setText('{"a": "bad"}');
    await model.settle();
    expect(model.values).toEqual({ a: 'bad' });
    expect(model.canStart).toBe(false);
  });

  it('lets no late answer undo what was typed since', async () => {
    const asked = requests();
    const { model } = await loaded(asked);
    let answer: (text: string) => void = () => undefined;
    vi.mocked(asked.render).mockImplementationOnce(
      () => new Promise(resolve => (answer = resolve))
    );
    model.setValue(['a'], 5);
    const late = model.settle();
    model.setText('{"a": 7}');
    answer('{"a": 5}');
    await late;
    await model.settle();
    expect(model.text).toBe('{"a": 7}');
    expect(model.values).toEqual({ a: 7 });
  });

  it('shows the fields of the provider that the text names', async () => {
    const asked = requests();
    const other: ISchema = { type: 'object', properties: { image: {} } };
    vi.mocked(asked.schema).mockImplementation(async provider =>
      provider === 'kuberay' ? other : SCHEMA
    );
    const { model } = await loaded(asked);
    expect(model.schema).toBe(SCHEMA);
    model.setValue(['provider'], 'kuberay');
    await model.settle();
    expect(model.schema).toBe(other);
    model.setText('{"provider": "kuberay", "env": {"A": "1"}}');
    await model.settle();
    expect(model.losesEnv).toBe(false);
    model.setText('{"provider": "local", "env": {"A": "1"}}');
    await model.settle();
    expect(model.schema).toBe(SCHEMA);
    expect(model.losesEnv).toBe(true);
    expect(asked.schema).toHaveBeenCalledTimes(3);
  });

  it('starts nothing while the server does not answer', async () => {
    const asked = requests();
    const { model } = await loaded(asked);
    vi.mocked(asked.check).mockRejectedValueOnce(new Error('gone'));
    model.setText('{"a": 2}');
    await model.settle();
    expect(model.trouble?.message).toBe('gone');
    expect(model.canStart).toBe(false);
  });

  it('warns of variables that would be lost', async () => {
    const { model } = await loaded();
    model.setText('{"env": {"TOKEN": "x"}}');
    await model.settle();
    expect(model.losesEnv).toBe(true);
  });
});

describe('what was typed', () => {
  it('is there again after another template was looked at', async () => {
    const { model } = await loaded();
    const [local, big] = model.templates;
    model.setValue(['b'], 3);
    await model.choose(big);
    expect(model.text).toBe('a: 1');
    expect(model.isChanged).toBe(false);
    await model.choose(local);
    expect(model.values).toEqual({ a: 1, b: 3 });
    expect(model.isChanged).toBe(true);
    expect(model.isOwnText).toBe(false);
  });

  it('is there again in the next form, until it is started or discarded', async () => {
    const kept = memory();
    const { model } = await loaded(requests(), '', kept);
    model.setText('{"a": 2}');
    model.dispose();
    const { model: next } = await loaded(requests(), '', kept);
    expect(next.text).toBe('{"a": 2}');
    expect(next.start).toEqual({ yaml: '{"a": 2}' });
    expect(next.isOwnText).toBe(true);
    await next.discard();
    expect(next.text).toBe('a: 1');
    const { model: last } = await loaded(requests(), '', kept);
    expect(last.isChanged).toBe(false);
  });

  it('is no draft where the store holds something else', () => {
    const drafts = new Drafts({ getItem: () => '[', setItem: () => undefined });
    expect(drafts.of(template())).toBeNull();
  });
});

describe('sizes', () => {
  const size = asField('store_bytes', { type: 'integer' });

  it.each([
    ['2 GiB', 2 ** 31, '2 GiB'],
    ['1.5g', 1.5 * 2 ** 30, '1.5 GiB'],
    ['512MB', 2 ** 29, '512 MiB'],
    ['100000000', 1e8, '100000000']
  ])('%s', (text, bytes, shown) => {
    expect(fromText(text, size)).toBe(bytes);
    expect(asText(bytes, size)).toBe(shown);
  });

  it('stays text that is no size, and numbers that are none', () => {
    expect(fromText('2 GiBs', size)).toBe('2 GiBs');
    expect(sizeOf('much')).toBeNull();
    expect(sizeText(1234)).toBe('1234');
    expect(fromText('3', asField('num_cpus', { type: 'integer' }))).toBe(3);
    expect(asText(2 ** 31, asField('num', { type: 'integer' }))).toBe(
      String(2 ** 31)
    );
    const keep = asField('keep', { type: 'integer', format: 'byte-size' });
    expect(asText(2 ** 33, keep)).toBe('8 GiB');
  });
});

describe('values and texts', () => {
  it('sets and takes out values, with sections that become empty', () => {
    const one = withValue({}, ['warm', 'enabled'], false);
    expect(one).toEqual({ warm: { enabled: false } });
    expect(valueAt(one, ['warm', 'enabled'])).toBe(false);
    expect(valueAt(one, ['warm', 'enabled', 'x'])).toBeUndefined();
    expect(withValue(one, ['warm', 'enabled'], undefined)).toEqual({});
    expect(withValue({ a: 1, b: 2 }, ['a'], undefined)).toEqual({ b: 2 });
  });

  it.each<[string, ISchema, unknown]>([
    ['', { type: 'integer' }, undefined],
    ['3', { type: 'integer' }, 3],
    ['1.5', { type: 'number' }, 1.5],
    ['many', { type: 'integer' }, 'many'],
    ['a\n b \n\n', { type: 'array' }, ['a', 'b']],
    ['A=1\nB = x=y', { type: 'object' }, { A: '1', B: 'x=y' }],
    ['A', { type: 'object' }, { A: '' }],
    ['name', { type: 'string' }, 'name']
  ])('%j', (text, schema, value) => {
    expect(fromText(text, schema)).toEqual(value);
  });

  it('shows values as they would be typed', () => {
    expect(asText(null, { type: 'integer' })).toBe('');
    expect(asText(['a', 'b'], { type: 'array' })).toBe('a\nb');
    expect(asText({ A: '1' }, { type: 'object' })).toBe('A=1');
    expect(placeholder({ nullable: true })).toBe('null');
    expect(placeholder({ default: 120 })).toBe('120');
  });

  it('finds the field of a problem', () => {
    expect(concerns('warm.preload[0]', 'warm.preload')).toBe(true);
    expect(concerns('env.A', 'env')).toBe(true);
    expect(concerns('num_cpus', 'num')).toBe(false);
  });
});

describe('fields that only YAML can hold', () => {
  it.each<[ISchema, boolean]>([
    [{ type: 'array', items: { type: 'string' } }, false],
    [{ type: 'array', items: { type: 'object', properties: {} } }, true],
    [{ type: 'array', items: { type: 'array' } }, true],
    [{ type: 'array', items: {} }, true],
    [{ type: 'object', additionalProperties: { type: 'string' } }, false],
    [{ type: 'object', additionalProperties: {} }, true],
    [{ type: 'object', properties: {} }, false],
    [{ type: 'integer' }, false]
  ])('%j', (schema, only) => {
    expect(isOnlyYaml(schema)).toBe(only);
  });

  it('counts what is there', () => {
    expect(entries([{}, {}])).toBe(2);
    expect(entries({ a: 1 })).toBe(1);
    expect(entries(undefined)).toBe(0);
  });
});
