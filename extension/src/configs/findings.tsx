import { Dialog, showDialog } from '@jupyterlab/apputils';
import * as React from 'react';

import { trans } from '../trans';
import { Busy } from '../ui/parts';
import { ConfigCheck, ConfigDiagnostic } from '../wire';

const SLOW_MS = 4000;

interface IProps {
  check: ConfigCheck;
  /** With it each mistake is a button that leads to its place. */
  onGo?: (item: ConfigDiagnostic) => void;
}

/**
 * What a config works out to, or all that is wrong with it; then warnings, and what was tried.
 */
export function Findings(props: IProps): JSX.Element {
  const { check } = props;
  const { valid, effect, diagnostics, warnings, checked } = check;
  return (
    <>
      {valid && (
        <div className="llmops-configs-right" role="status">
          {effect.map((line, index) => (
            <div key={index}>{line}</div>
          ))}
        </div>
      )}
      {!valid && (
        <div className="llmops-configs-wrong" role="alert">
          <div>
            {trans._n('1 problem:', '%1 problems:', diagnostics.length)}
          </div>
          <Items {...props} items={diagnostics} />
        </div>
      )}
      {warnings.length > 0 && (
        <div
          className="llmops-configs-wrong llmops-configs-warned"
          role="status"
        >
          <div>{trans._n('1 warning:', '%1 warnings:', warnings.length)}</div>
          <Items {...props} items={warnings} />
        </div>
      )}
      {checked.length > 0 && (
        <ul
          className="llmops-configs-tried"
          aria-label={trans.__('What was checked')}
        >
          {checked.map((line, index) => (
            <li key={index}>{line}</li>
          ))}
        </ul>
      )}
    </>
  );
}

/**
 * Shown while a check goes on; says after some seconds what may need them.
 */
export function Checking(): JSX.Element {
  const [isSlow, setSlow] = React.useState(false);
  React.useEffect(() => {
    const timer = setTimeout(() => setSlow(true), SLOW_MS);
    return () => clearTimeout(timer);
  }, []);
  const text = isSlow
    ? trans.__(
        'Checking: reading and tokenising rows, contacting the hub for ids that are not on this machine…'
      )
    : trans.__('Checking…');
  return <Busy text={text} />;
}

function Items(
  props: IProps & { items: readonly ConfigDiagnostic[] }
): JSX.Element {
  return (
    <ul>
      {props.items.map((item, index) => (
        <li key={index}>
          <Finding item={item} onGo={props.onGo} />
        </li>
      ))}
    </ul>
  );
}

function Finding(props: {
  item: ConfigDiagnostic;
  onGo?: (item: ConfigDiagnostic) => void;
}): JSX.Element {
  const { item, onGo } = props;
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

/**
 * Show what a check found of a file that is not open.
 * @returns whether the user wants to edit it
 */
export async function showFindings(
  title: string,
  check: ConfigCheck
): Promise<boolean> {
  const edit = Dialog.createButton({ label: trans.__('Open File') });
  const close = Dialog.okButton({ label: trans.__('Close') });
  const result = await showDialog({
    title,
    body: (
      <div className="llmops-lab-dialog llmops-configs-submit">
        <Findings check={check} />
      </div>
    ),
    buttons: check.valid ? [close] : [edit, close],
    defaultButton: check.valid ? 0 : 1
  });
  return !check.valid && result.button.label === edit.label;
}
