import * as React from 'react';

import { trans } from '../../trans';
import { Scrolled } from '../../ui/parts';
import { ComparedFigure, Comparison } from '../../wire';
import { RunHeads } from './heads';

export type Group = ComparedFigure['group'];

/** A column narrower than this would break figures in the middle. */
const FIGURE_PX = 130;
const NAME_PX = 140;

/** The figures of one group side by side; nothing where no run has one. */
export function Figures(props: {
  comparison: Comparison;
  group: Group;
}): JSX.Element | null {
  const { comparison, group } = props;
  const figures = comparison.figures.filter(figure => figure.group === group);
  if (figures.length === 0) {
    return null;
  }
  return (
    <Scrolled
      className="llmops-compare-scroll"
      label={trans.__('Figures of the runs')}
    >
      <table
        className="llmops-lab-table llmops-compare-figures"
        style={{ minWidth: NAME_PX + FIGURE_PX * comparison.runs.length }}
      >
        <RunHeads first={[trans.__('Figure')]} runs={comparison.runs} />
        <tbody>
          {figures.map(({ label, texts, changes }) => (
            <tr key={label}>
              <th scope="row">{label}</th>
              {texts.map((text, index) => (
                <td key={index}>
                  <span>{text}</span>
                  {index !== comparison.base && (
                    <span
                      className="llmops-compare-ratio"
                      title={trans.__('Compared with the baseline')}
                    >
                      {changes[index]}
                    </span>
                  )}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Scrolled>
  );
}
