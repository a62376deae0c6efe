import { RunTableColumn } from '../wire';

/** Words that say nothing without the section that they are of: `model.id` is the model. */
const OF_SECTION = /\.(id|type)$/;

/** The end of each config path that no other column has: the whole one is in the tooltip. */
export function shortHeads(
  columns: readonly Pick<RunTableColumn, 'label' | 'source'>[]
): string[] {
  const end = (label: string, size: number) =>
    label.replace(OF_SECTION, '').split('.').slice(-size).join('.');
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
