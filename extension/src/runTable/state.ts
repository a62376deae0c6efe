import { ReadonlyPartialJSONObject } from '@lumino/coreutils';

/**
 * What a user has chosen in one table: kept with the layout of the workspace.
 */
export interface ITableState {
  where: string;
  sort: string;
  /** Empty for the usual columns. */
  columns: readonly string[];
  group: string;
  colour_by: string;
  hidden: boolean;
  /** Whether the parallel coordinates are shown. */
  rays: boolean;
}

export const EMPTY: ITableState = {
  where: '',
  sort: '',
  columns: [],
  group: '',
  colour_by: '',
  hidden: false,
  rays: false
};

/** The state from arguments of a command; anything of another type is left out. */
export function stateOf(args: ReadonlyPartialJSONObject): ITableState {
  const text = (name: keyof ITableState): string =>
    typeof args[name] === 'string' ? (args[name] as string) : '';
  const columns = Array.isArray(args.columns) ? args.columns : [];
  return {
    where: text('where'),
    sort: text('sort'),
    columns: columns.filter(name => typeof name === 'string'),
    group: text('group'),
    colour_by: text('colour_by'),
    hidden: args.hidden === true,
    rays: args.rays === true
  };
}

/**
 * The order after a click on a column's head: the better end first, then the other, then none.
 */
export function nextSort(
  sort: string,
  name: string,
  better: 'lower' | 'higher' | null
): string {
  const first = better === 'higher' ? `-${name}` : name;
  const second = better === 'higher' ? name : `-${name}`;
  return sort === first ? second : sort === second ? '' : first;
}

/** `ascending` and `descending` as screen readers know them. */
export function sortOf(
  sort: string,
  name: string
): 'ascending' | 'descending' | 'none' {
  const [main] = sort.split(',').map(part => part.trim());
  return main === name
    ? 'ascending'
    : main === `-${name}`
      ? 'descending'
      : 'none';
}
