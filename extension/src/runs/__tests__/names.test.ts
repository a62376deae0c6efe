import { describe, expect, it } from 'vitest';

import { keptFrom, nameOf, nameWithId } from '../model';

const RUN = {
  run_id: 'lora-261123-aaaa',
  name: 'lora',
  title: '',
  differs: ''
};

describe('what a run is called', () => {
  it('is its title, else what differs, else the name of its config', () => {
    expect(nameOf({ ...RUN, title: 'Best', differs: 'lr 2e-3' })).toBe('Best');
    expect(nameOf({ ...RUN, differs: 'lr 2e-3' })).toBe('lr 2e-3');
    expect(nameOf(RUN)).toBe('lora');
    expect(nameOf({ ...RUN, name: '' })).toBe('lora-261123-aaaa');
  });

  it('has the id behind it, once', () => {
    expect(nameWithId({ ...RUN, differs: 'lr 2e-3' })).toBe(
      'lr 2e-3 (lora-261123-aaaa)'
    );
    expect(nameWithId(RUN)).toBe('lora-261123-aaaa');
    expect(nameWithId({ ...RUN, name: 'tags' })).toBe(
      'tags (lora-261123-aaaa)'
    );
  });
});

it.each([
  ['data part-3.jsonl · max_length 512', ' 512'],
  ['lr 1e-4 · r 4', ' 4'],
  ['toy · 14:03:20', ' 14:03:20'],
  ['one-word', ''],
  ['a the-last-word-is-too-long-to-be-kept', '']
])('of a name that is cut off its last value stays: %s', (name, kept) => {
  expect(name.slice(keptFrom(name))).toBe(kept);
});
