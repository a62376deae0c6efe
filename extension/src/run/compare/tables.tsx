import * as React from 'react';

import { trans } from '../../trans';
import { DASH } from '../../ui/format';
import { Name, Scrolled } from '../../ui/parts';
import { ComparedFigure, Comparison, RunRow, SampledAnswer } from '../../wire';
import { COLORS } from './curves';
import { shownNames } from './names';

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

/** The head of a table with some columns of its own, then one for each run in its colour. */
function RunHeads(props: {
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
