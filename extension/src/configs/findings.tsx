import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { ConfigCheck, ConfigDiagnostic } from '../wire';

/**
 * What a config works out to, or all that is wrong with it; with `onGo` each mistake is a
 * button that leads to its place.
 */
export function Findings(props: {
  check: ConfigCheck;
  trans: TranslationBundle;
  onGo?: (item: ConfigDiagnostic) => void;
}): JSX.Element {
  const { check, trans, onGo } = props;
  if (check.valid) {
    return (
      <div className="llmops-configs-right" role="status">
        {check.effect.map((line, index) => (
          <div key={index}>{line}</div>
        ))}
      </div>
    );
  }
  const count = check.diagnostics.length;
  return (
    <div className="llmops-configs-wrong" role="alert">
      <div>{trans._n('1 problem:', '%1 problems:', count)}</div>
      <ul>
        {check.diagnostics.map((item, index) => (
          <li key={index}>
            <Finding item={item} trans={trans} onGo={onGo} />
          </li>
        ))}
      </ul>
    </div>
  );
}

function Finding(props: {
  item: ConfigDiagnostic;
  trans: TranslationBundle;
  onGo?: (item: ConfigDiagnostic) => void;
}): JSX.Element {
  const { item, trans, onGo } = props;
  const text = (
    <>
      {item.path && <code>{item.path}</code>} {item.message}
      {item.value && <> ({trans.__('value %1', item.value)})</>}
      {item.suggestion && <>; {item.suggestion}</>}
    </>
  );
  if (!onGo) {
    return <span>{text}</span>;
  }
  return (
    <button
      type="button"
      title={trans.__('Go to line %1', item.line)}
      onClick={() => onGo(item)}
    >
      <span className="llmops-configs-line">{item.line}</span>
      <span>{text}</span>
    </button>
  );
}
