import { RunRow } from '../wire';

/** What a run is called by. */
export type Named = Pick<RunRow, 'title' | 'differs' | 'name' | 'run_id'>;

/**
 * Its title, else what it differs in from the other runs of its config, else its config's name:
 * an id is never the only name.
 */
export function nameOf({ title, differs, name, run_id }: Named): string {
  return title || differs || name || run_id;
}

/** The name with the id behind it; an id that begins with the name says both. */
export function nameWithId(run: Named): string {
  const { run_id } = run;
  const name = nameOf(run);
  return run_id === name || run_id.startsWith(`${name}-`)
    ? run_id
    : `${name} (${run_id})`;
}

const MOST_KEPT = 16;

/**
 * Where the end of a name begins that is not cut off: its last word, often the one value that
 * tells it from the others, as in `data part-3.jsonl · max_length 512`.
 */
export function keptFrom(name: string): number {
  const at = name.trimEnd().lastIndexOf(' ');
  return at > 0 && name.length - at <= MOST_KEPT ? at : name.length;
}
