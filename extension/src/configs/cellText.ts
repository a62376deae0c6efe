/**
 * The config in a cell: its text without a first line such as `%%yaml`; null when the cell
 * does not look like a training config.
 */
export function configOf(source: string): string | null {
  const [first, ...rest] = source.split('\n');
  if (/^\s*%%ya?ml\b/.test(first)) {
    return rest.join('\n');
  }
  const hasKey = (key: string) =>
    new RegExp(`^${key}[ \\t]*:([ \\t]|$)`, 'm').test(source);
  return hasKey('model') && hasKey('data') ? source : null;
}

/** One override a line; empty lines and comments are none. */
export function overridesOf(text: string): string[] {
  return text
    .split('\n')
    .map(line => line.trim())
    .filter(line => line && !line.startsWith('#'));
}
