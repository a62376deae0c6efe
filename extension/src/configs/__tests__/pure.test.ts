import { Text } from '@codemirror/state';
import { describe, expect, it } from 'vitest';

import { ILLMOps } from '../../tokens';
import { ClusterRow, ConfigCompletion, ConfigDiagnostic } from '../../wire';
import { configOf } from '../cell';
import { chosen, shownAs } from '../choice';
import { freeName } from '../configCommands';
import {
  markdown,
  marks,
  offsetAt,
  replacement,
  resultOf,
  toCharacters,
  toUnits,
  words
} from '../editor';
import { Kinds, matches, titleOf } from '../kinds';
import { overridesOf, overridesOfStart } from '../submit';

function diagnostic(some: Partial<ConfigDiagnostic>): ConfigDiagnostic {
  return {
    line: 1,
    column: 0,
    end_line: 1,
    end_column: 1,
    severity: 'error',
    path: 'method.type',
    message: 'must be one of full, lora',
    value: null,
    suggestion: '',
    file: null,
    ...some
  };
}

describe('globs', () => {
  it.each([
    ['lora.train.yaml', '*.train.yaml', true],
    ['a/b/lora.train.yaml', '*.train.yaml', true],
    ['train.yaml', '*.train.yaml', false],
    ['loraXtrainXyaml', '*.train.yaml', false],
    ['cluster_templates/big.yaml', 'cluster_templates/*.yaml', true],
    ['a/cluster_templates/big.yaml', 'cluster_templates/*.yaml', true],
    ['cluster_templates/a/big.yaml', 'cluster_templates/*.yaml', false],
    ['big.yaml', 'cluster_templates/*.yaml', false]
  ])('%s %s', (path, glob, expected) => {
    expect(matches(path, glob)).toBe(expected);
  });

  it('leaves YAML of another kind alone', () => {
    const request = () => Promise.reject(new Error('not asked'));
    const kinds = new Kinds({ request } as unknown as ILLMOps);
    expect(kinds.of('cluster_templates/big.yaml')?.name).toBe('cluster');
    expect(kinds.of('scripts/ddp.script.yaml')?.name).toBe('script');
    expect(kinds.of('cluster_templates/rbac.yaml')).toBeNull();
    expect(kinds.of('a/cluster_templates/rbac.yml')).toBeNull();
  });
});

describe('a kind that the server brings', () => {
  it('is known by its file names once it has answered', async () => {
    const toy = {
      name: 'index',
      title: 'Index config',
      globs: ['*.index.yaml'],
      new_file: 'new.index.yaml',
      is_run: true
    };
    const request = () => Promise.resolve([toy]);
    const kinds = new Kinds({ request } as unknown as ILLMOps);
    await kinds.ready;
    expect(kinds.of('a/docs.index.yaml')).toEqual(toy);
    expect(kinds.named('index')?.is_run).toBe(true);
  });
});

describe('columns', () => {
  it('counts an emoji once on the server and twice here', () => {
    const line = 'name: 🚀x';
    expect(toUnits(line, 7)).toBe(8);
    expect(toCharacters(line, 8)).toBe(7);
    expect(toUnits(line, 99)).toBe(line.length);
  });
  it('stays inside the document', () => {
    const doc = Text.of(['a: 1', 'b: 2']);
    expect(offsetAt(doc, 2, 1)).toBe(6);
    expect(offsetAt(doc, 99, 99)).toBe(doc.length);
    expect(offsetAt(doc, 0, 0)).toBe(0);
  });
});

describe('cells', () => {
  it.each([
    ['%%yaml\nmodel: x\n', 'model: x\n'],
    ['model: x\ndata: y\n', 'model: x\ndata: y\n'],
    [
      'model:\n  id: x\ndata:\n  train: y',
      'model:\n  id: x\ndata:\n  train: y'
    ],
    ['model: x\n', null],
    ['config = """\nmodel = 1\ndata = 2"""', null],
    ['  model: x\n  data: y', null],
    ['', null]
  ])('%j', (source, expected) => {
    expect(configOf(source)).toBe(expected);
  });
  it('reads overrides line by line', () => {
    expect(overridesOf(' a.b=1 \n\n# not this\nc=2')).toEqual(['a.b=1', 'c=2']);
  });
});

describe('the chosen cluster', () => {
  const row = (name: string, state: string, doing = ''): ClusterRow =>
    ({ name, doing, info: { state } }) as ClusterRow;
  const rows = [row('a', 'stopped'), row('b', 'ready'), row('c', 'ready')];
  it('is the first wish that exists', () => {
    expect(chosen(rows, ['', 'gone', 'c', 'a'])).toBe('c');
  });
  it('is else one that is ready', () => {
    expect(chosen(rows, [''])).toBe('b');
    expect(chosen([rows[0]], [])).toBe('a');
    expect(chosen([], ['a'])).toBeNull();
  });
  it('is shown with its state unless it is ready', () => {
    expect(rows.map(shownAs)).toEqual(['a (stopped)', 'b', 'c']);
    expect(shownAs(row('d', 'stopped', 'up'))).toBe('d (up)');
  });
});

describe('new files', () => {
  it('take the first free name', () => {
    const taken = new Set(['new.train.yaml', 'new-2.train.yaml']);
    expect(freeName('new.train.yaml', taken)).toBe('new-3.train.yaml');
    expect(freeName('new.train.yaml', new Set())).toBe('new.train.yaml');
  });
});

describe('diagnostics', () => {
  it('are placed, with a fix where a word would work', () => {
    const doc = Text.of(['method: loraa', 'seed: 1']);
    const [mark] = marks(doc, [
      diagnostic({
        column: 8,
        end_column: 13,
        suggestion: 'did you mean lora?'
      })
    ]);
    expect([mark.from, mark.to]).toEqual([8, 13]);
    expect(mark.message).toContain('method.type: must be');
    expect(mark.actions?.map(action => action.name)).toEqual([
      'Change to lora'
    ]);
  });
  it('offer no fix that moves a key to another section', () => {
    const moved = {
      message: 'unknown key',
      suggestion: 'did you mean optimizer.learning_rate?'
    };
    expect(replacement(diagnostic(moved))).toBeNull();
    expect(
      replacement(diagnostic({ suggestion: 'the default is 4' }))
    ).toBeNull();
  });
  it('are one line for people', () => {
    expect(words(diagnostic({ path: '', suggestion: 'close it' }))).toBe(
      'must be one of full, lora; close it'
    );
  });
});

describe('proposals', () => {
  const item = (some: Partial<ConfigCompletion>): ConfigCompletion => ({
    label: 'full',
    insert: 'full',
    kind: 'value',
    detail: '',
    documentation: '',
    replace_from: 8,
    replace_to: 11,
    ...some
  });
  it('replace the word they were asked for', () => {
    const doc = Text.of(['seed: 1', 'method: ful']);
    const result = resultOf([item({}), item({ label: 'lora' })], {
      pos: 18,
      state: { doc }
    });
    expect([result.from, result.to]).toEqual([16, 19]);
    expect(result.options.map(option => option.label)).toEqual([
      'full',
      'lora'
    ]);
    expect(result.options[0].boost).toBeGreaterThan(
      result.options[1].boost ?? 0
    );
  });
});

describe('markdown', () => {
  it('knows paragraphs and code, and no markup', () => {
    const dom = markdown('One `two` <b>x</b>\n\nThree', 'c');
    expect(dom.innerHTML).toBe(
      '<p>One <code>two</code> &lt;b&gt;x&lt;/b&gt;</p><p>Three</p>'
    );
  });
});

describe('how a script is started', () => {
  it.each([
    ['', '', []],
    ['2', '', ['num_workers=2']],
    [' ', ' --lr 1e-4 ', ['args="--lr 1e-4"']],
    ['', '5', ['args="5"']],
    ['1', `--note 'a "b"'`, ['num_workers=1', `args="--note 'a \\"b\\"'"`]]
  ])('%s workers, %s', (workers, args, expected) =>
    expect(overridesOfStart({ workers, args })).toEqual(expected)
  );
});

it('calls new files of all kinds alike', () => {
  const kind = { name: 'score', globs: [], new_file: '', is_run: true };
  expect(titleOf({ ...kind, title: 'Score config' })).toBe('Score Config');
  expect(titleOf({ ...kind, title: 'Cluster template' })).toBe(
    'Cluster Template'
  );
  expect(titleOf(null)).toBe('Training Config');
});
