// The server counts columns in characters, editors in UTF-16 units: an emoji is one or two.

/** UTF-16 offset in a line of its character number `column`. */
export function toUnits(line: string, column: number): number {
  let units = 0;
  let seen = 0;
  for (const character of line) {
    if (seen >= column) {
      break;
    }
    units += character.length;
    seen += 1;
  }
  return units;
}

/** The number of characters before a UTF-16 offset of a line. */
export function toCharacters(line: string, units: number): number {
  return [...line.slice(0, units)].length;
}

interface ILine {
  from: number;
  to: number;
  text: string;
}

/** What is needed of CodeMirror's `Text`. */
export interface ILines {
  readonly lines: number;
  line(number: number): ILine;
}

/** Offset in a document of a line (from 1) and column (from 0), kept inside it. */
export function offsetAt(doc: ILines, line: number, column: number): number {
  const found = doc.line(Math.min(Math.max(line, 1), doc.lines));
  return Math.min(found.from + toUnits(found.text, column), found.to);
}
