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

/** The name with the id behind it, where several runs may be called the same. */
export function nameWithId(run: Named): string {
  const name = nameOf(run);
  return name === run.run_id ? name : `${name} (${run.run_id})`;
}
