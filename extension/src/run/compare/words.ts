/** A piece of a text, and whether the other text does not have it. */
export interface IPiece {
  text: string;
  isChanged: boolean;
}

/** More pairs of words than that would be felt; then the whole middle counts as changed. */
const MAX_PAIRS = 4_000_000;

/**
 * The words of two texts that are not in a longest common subsequence of both.
 */
export function changedWords(
  before: string,
  after: string
): [IPiece[], IPiece[]] {
  const [ours, theirs] = [tokens(before), tokens(after)];
  const isSame = (a: number, b: number) => ours[a].trim() === theirs[b].trim();
  let head = 0;
  const shortest = Math.min(ours.length, theirs.length);
  while (head < shortest && isSame(head, head)) {
    head++;
  }
  let tail = 0;
  while (
    tail < shortest - head &&
    isSame(ours.length - 1 - tail, theirs.length - 1 - tail)
  ) {
    tail++;
  }
  const middle = common(
    ours.slice(head, ours.length - tail),
    theirs.slice(head, theirs.length - tail)
  );
  const pieces = (all: string[], kept: ReadonlySet<number>) =>
    joined(
      all.map((text, index) => ({
        text,
        isChanged: !(
          index < head ||
          index >= all.length - tail ||
          kept.has(index - head)
        )
      }))
    );
  return [pieces(ours, middle[0]), pieces(theirs, middle[1])];
}

/** Each word with the white space behind it. */
function tokens(text: string): string[] {
  return text.match(/^\s+|\S+\s*/g) ?? [];
}

/** Indexes of the words of a longest common subsequence, in either text. */
function common(ours: string[], theirs: string[]): [Set<number>, Set<number>] {
  const found: [Set<number>, Set<number>] = [new Set(), new Set()];
  const [a, b] = [ours, theirs].map(all => all.map(word => word.trim()));
  if (a.length * b.length > MAX_PAIRS) {
    return found;
  }
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] =
        a[i] === b[j]
          ? longest[(i + 1) * width + j + 1] + 1
          : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) {
      found[0].add(i++);
      found[1].add(j++);
    } else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) {
      i++;
    } else {
      j++;
    }
  }
  return found;
}

function joined(pieces: IPiece[]): IPiece[] {
  const found: IPiece[] = [];
  for (const { text, isChanged } of pieces) {
    const last = found[found.length - 1];
    if (last?.isChanged === isChanged) {
      last.text += text;
    } else {
      found.push({ text, isChanged });
    }
  }
  return found;
}
