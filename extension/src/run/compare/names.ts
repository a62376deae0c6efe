const SEPARATORS = /[-_./: ]/;

/** A name beside others, and where the part begins that tells it from them. */
export interface IShownName {
  text: string;
  from: number;
}

/**
 * The title of each run, or what differs from the others, or its id; what is given twice is
 * followed by the id.
 */
export function shownNames(
  runs: readonly { title: string; run_id: string; differs?: string }[]
): IShownName[] {
  const named = runs.map(({ title, differs, run_id }) => ({
    title: title || (differs ?? ''),
    run_id
  }));
  const titles = named.map(({ title }) => title);
  const texts = named.map(({ title, run_id }) => {
    const isUnique = titles.filter(other => other === title).length === 1;
    return title && !isUnique ? `${title} ${run_id}` : title || run_id;
  });
  return texts.map((text, index) => ({
    text,
    from: distinguishedFrom(
      text,
      texts.filter((_, other) => other !== index)
    )
  }));
}

/** After the last separator of the longest beginning that it shares with another name. */
export function distinguishedFrom(
  text: string,
  others: readonly string[]
): number {
  const shared = Math.max(0, ...others.map(other => sharedLength(text, other)));
  for (let from = Math.min(shared, text.length - 1); from > 0; from--) {
    if (SEPARATORS.test(text[from - 1])) {
      return from;
    }
  }
  return 0;
}

const PARTS = ' · ';
/** So long a name is shown whole everywhere. */
const SHORT = 20;

/** For places of little width, such as a chart's legend: without the parts that all have. */
export function shortNames(names: readonly IShownName[]): string[] {
  const parts = names.map(({ text }) => text.split(PARTS));
  const isShared = (part: string) => parts.every(own => own.includes(part));
  const told = parts.map(own => own.filter(part => !isShared(part)));
  return names.map((name, index) => {
    const own = told[index];
    const isLess = own.length > 0 && own.length < parts[index].length;
    if (parts[index].length > 1) {
      return isLess ? own.join(PARTS) : name.text;
    }
    return short(name);
  });
}

function short({ text, from }: IShownName): string {
  return from > 0 && text.length > SHORT ? `…${text.slice(from)}` : text;
}

function sharedLength(one: string, other: string): number {
  let length = 0;
  while (length < one.length && one[length] === other[length]) {
    length++;
  }
  return length;
}
