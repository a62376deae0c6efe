import { RunTableColumn } from '../wire';

/** The end of each config path that no other column has: the whole one is in the tooltip. */
export function shortHeads(
  columns: readonly Pick<RunTableColumn, 'label' | 'source'>[]
): string[] {
  const end = (label: string, size: number) =>
    label.split('.').slice(-size).join('.');
  return columns.map(({ label, source }) => {
    for (let size = 1; source === 'config' && size < 4; size++) {
      const text = end(label, size);
      const same = columns.filter(other => end(other.label, size) === text);
      if (same.length === 1) {
        return text;
      }
    }
    return label;
  });
}
