import * as React from 'react';

import { trans } from '../../trans';
import { DASH } from '../../ui/format';
import { Scrolled } from '../../ui/parts';
import { Comparison, SampledAnswer } from '../../wire';
import { RunHeads } from './heads';

/** A column narrower than this would break most words. */
const COLUMN_PX = 180;

/**
 * The newest answers to the same rows side by side, with the words that the first run's lacks.
 */
export function SamplesSection(props: {
  comparison: Comparison;
}): JSX.Element | null {
  const { comparison } = props;
  const { runs, samples } = comparison;
  if (samples.length === 0) {
    return null;
  }
  return (
    <section aria-label={trans.__('Samples')}>
      <h3>{trans.__('Samples')}</h3>
      <Scrolled
        className="llmops-compare-scroll"
        label={trans.__('Answers of the runs')}
      >
        <table
          className="llmops-lab-table llmops-compare-samples"
          style={{ minWidth: COLUMN_PX * (2 + runs.length) }}
        >
          <RunHeads
            first={[trans.__('Prompt'), trans.__('Reference')]}
            runs={runs}
          />
          <tbody>
            {samples.map(({ row, prompt, reference, answers }) => (
              <tr key={`${row} ${prompt}`}>
                <td title={trans.__('Row %1', row)}>{prompt}</td>
                <td>{reference || DASH}</td>
                {answers.map((answer, index) => (
                  <td key={index}>{answer ? <Answer {...answer} /> : DASH}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Scrolled>
    </section>
  );
}

function Answer(props: SampledAnswer & {}): JSX.Element {
  const { at, words, more } = props;
  return (
    <div title={trans.__('Step %1', at)}>
      {words.map(([text, isNew], index) =>
        isNew ? (
          <mark key={index}>{text}</mark>
        ) : (
          <span key={index}>{text}</span>
        )
      )}
      {more}
    </div>
  );
}
