import * as React from 'react';

import { trans } from '../trans';
import { moveByArrows } from '../ui/hooks';
import { RunTableColumn } from '../wire';
import { IGridProps } from './props';
import { nextSort, sortOf } from './state';

/**
 * The heads of the columns: one place for Tab, the arrow keys move between them, Enter sorts.
 */
export function Head(
  props: IGridProps & { columns: readonly RunTableColumn[] }
): JSX.Element {
  const { model, columns } = props;
  const { sort } = model.state;
  const [focused, setFocused] = React.useState('');
  const heads = shortHeads(columns);
  const first = Math.max(
    0,
    columns.findIndex(({ name }) => name === focused)
  );
  return (
    <div className="llmops-runtable-head" role="rowgroup">
      <div
        className="llmops-runtable-line"
        role="row"
        aria-rowindex={1}
        onKeyDown={event => {
          moveByArrows(event, 'button', 'row');
          // Else Enter would also open the run whose line is active.
          event.stopPropagation();
        }}
      >
        <div
          className="llmops-runtable-name"
          role="columnheader"
          aria-sort={sortOf(sort, 'run')}
        >
          {trans.__('run')}
        </div>
        {columns.map((column, at) => (
          <div
            key={column.name}
            className="llmops-runtable-cell"
            data-type={column.type}
            data-differs={column.differs}
            role="columnheader"
            aria-sort={sortOf(sort, column.name)}
          >
            <button
              type="button"
              tabIndex={at === first ? 0 : -1}
              title={headTitle(column)}
              onFocus={() => setFocused(column.name)}
              onClick={() =>
                model.set({ sort: nextSort(sort, column.name, column.better) })
              }
            >
              {heads[at]}
            </button>
          </div>
        ))}
      </div>
    </div>
  );
}

function headTitle(column: RunTableColumn): string {
  const words = [trans.__('Sort by %1', column.name)];
  if (column.better) {
    words.push(trans.__('%1 is better', column.better));
  }
  if (column.differs) {
    words.push(trans.__('differs between these runs'));
  }
  return words.join('; ');
}

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
