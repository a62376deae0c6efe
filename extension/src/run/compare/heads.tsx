import * as React from 'react';

import { Name } from '../../ui/parts';
import { RunRow } from '../../wire';
import { COLORS } from './curves';
import { shownNames } from './names';

/** The head of a table with some columns of its own, then one for each run in its colour. */
export function RunHeads(props: {
  first: readonly string[];
  runs: readonly RunRow[];
}): JSX.Element {
  const { first, runs } = props;
  const names = shownNames(runs);
  return (
    <thead>
      <tr>
        {first.map(label => (
          <th key={label} scope="col">
            {label}
          </th>
        ))}
        {runs.map((run, index) => (
          <th key={run.run_id} scope="col" title={run.run_id}>
            <span className="llmops-compare-head">
              <span
                className="llmops-compare-color"
                style={{ background: COLORS[index % COLORS.length] }}
              />
              <Name {...names[index]} />
            </span>
          </th>
        ))}
      </tr>
    </thead>
  );
}
