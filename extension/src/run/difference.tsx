import * as React from 'react';

import { Named } from '../runs/model';
import { trans } from '../trans';
import { Clamped, Name } from '../ui/parts';
import { Change, CodeChange, RunDifference } from '../wire';
import { distinguishedFrom, shownNames } from './compare/names';

/** Of more values the first are shown, of longer code its name: loss and metrics follow below. */
const MANY = 12;
const LONG = 60;

/**
 * What differs from one run to another: config, code, environment.
 */
export function Difference(props: {
  difference: RunDifference;
  /** Those that are compared. */
  runs: readonly Named[];
}): JSX.Element {
  const { difference, runs } = props;
  const { config, code, environment } = difference;
  const isSame = config.length + code.length + environment.length === 0;
  const heads = [difference.before, difference.after].map(run_id => ({
    run_id,
    name: nameIn(runs, run_id)
  }));
  const [before, after] = heads.map(({ name }) => name);
  return (
    <section
      className="llmops-difference"
      aria-label={trans.__('From %1 to %2', before, after)}
    >
      <h3>
        <Head {...heads[0]} other={after} />
        →
        <Head {...heads[1]} other={before} />
      </h3>
      {isSame && <p>{trans.__('Same config, code and environment.')}</p>}
      <Changes title={trans.__('Config')} heads={heads} changes={config} />
      {difference.prediction && <p>{difference.prediction}</p>}
      <FileChanges changes={code} />
      {environment.length > 0 && (
        <details className="llmops-environment">
          <summary>
            {trans._n(
              '%1 difference of the environment',
              '%1 differences of the environment',
              environment.length
            )}
          </summary>
          <Changes
            title={trans.__('Environment')}
            heads={heads}
            changes={environment}
          />
        </details>
      )}
    </section>
  );
}

function nameIn(runs: readonly Named[], run_id: string): string {
  const at = runs.findIndex(run => run.run_id === run_id);
  return at < 0 ? run_id : shownNames(runs)[at].text;
}

interface IHead {
  run_id: string;
  name: string;
}

/** One of two runs. */
function Head(props: IHead & { other: string }): JSX.Element {
  const { run_id, name, other } = props;
  return (
    <span title={run_id}>
      <Name text={name} from={distinguishedFrom(name, [other])} />
    </span>
  );
}

function Changes(props: {
  title: string;
  heads: readonly IHead[];
  changes: readonly Change[];
}): JSX.Element | null {
  const { title, heads, changes } = props;
  const [isWhole, setWhole] = React.useState(false);
  if (changes.length === 0) {
    return null;
  }
  const shown =
    isWhole || changes.length <= MANY + 2 ? changes : changes.slice(0, MANY);
  return (
    <>
      <table className="llmops-lab-table llmops-changes">
        <thead>
          <tr>
            <th scope="col">{title}</th>
            {heads.map((head, index) => (
              <th key={head.run_id} scope="col">
                <Head {...head} other={heads[1 - index].name} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map(({ path, before, after }) => (
            <tr key={path}>
              <th scope="row">
                <code>{path}</code>
              </th>
              <td className="llmops-before">
                <Clamped text={before} />
              </td>
              <td className="llmops-after">
                <Clamped text={after} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {shown.length < changes.length && (
        <button
          type="button"
          className="llmops-runs-link"
          onClick={() => setWhole(true)}
        >
          {trans.__('Show all %1', changes.length)}
        </button>
      )}
    </>
  );
}

/**
 * Code is open; data, logs and outputs are behind one line that counts them.
 */
export function FileChanges(props: {
  changes: readonly CodeChange[];
}): JSX.Element {
  const { changes } = props;
  const others = changes.filter(change => !change.is_code);
  return (
    <>
      {changes
        .filter(change => change.is_code)
        .map(change => (
          <CodeDiff
            key={change.path}
            change={change}
            isOpen={change.unified_diff.split('\n').length <= LONG}
          />
        ))}
      {others.length > 0 && (
        <details className="llmops-otherfiles">
          <summary>
            {trans._n(
              '%1 other file (data, logs, outputs)',
              '%1 other files (data, logs, outputs)',
              others.length
            )}
          </summary>
          {others.map(change => (
            <CodeDiff key={change.path} change={change} isOpen={false} />
          ))}
        </details>
      )}
    </>
  );
}

function CodeDiff(props: { change: CodeChange; isOpen: boolean }): JSX.Element {
  const { change, isOpen } = props;
  return (
    <details open={isOpen} className="llmops-codediff">
      <summary>
        {change.kind} <code>{change.path}</code> {change.counts}
      </summary>
      <DiffText text={change.unified_diff} />
    </details>
  );
}

/**
 * A unified diff; the sign at the begin of a line carries the meaning, not the colour.
 */
export function DiffText({ text }: { text: string }): JSX.Element {
  return (
    <pre tabIndex={0}>
      {text
        .replace(/\n$/, '')
        .split('\n')
        .map((line, index) => (
          <div key={index} data-sign={signOf(line)}>
            {line || ' '}
          </div>
        ))}
    </pre>
  );
}

export function signOf(line: string): string | undefined {
  if (line.startsWith('+++') || line.startsWith('---')) {
    return undefined;
  }
  return '+-@'.includes(line[0] ?? ' ') ? line[0] : undefined;
}
