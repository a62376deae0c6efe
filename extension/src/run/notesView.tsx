import * as React from 'react';

import { asTrouble } from '../api';
import { trans } from '../trans';
import { TroubleBox } from '../ui/parts';
import { NotesBody, Trouble } from '../wire';
import { RunModel } from './model';

const SAVE_DELAY_MS = 700;

/**
 * Title and note, saved as one writes. What others write meanwhile shows where nothing was typed.
 */
export function NotesSection(props: {
  model: RunModel;
  save: (changes: NotesBody) => Promise<unknown>;
}): JSX.Element {
  const { model } = props;
  const state = model.state;
  return (
    <div className="llmops-runpanel-page llmops-runpanel-notes">
      <Saved
        label={trans.__('Title')}
        value={state?.row.title ?? ''}
        save={title => props.save({ title })}
      />
      <Saved
        label={trans.__('Note')}
        value={state?.note ?? ''}
        save={note => props.save({ note })}
        rows={16}
      />
    </div>
  );
}

function Saved(props: {
  label: string;
  value: string;
  save: (text: string) => Promise<unknown>;
  rows?: number;
}): JSX.Element {
  const { label, value, save, rows } = props;
  const [draft, setDraft] = React.useState<string | null>(null);
  const [trouble, setTrouble] = React.useState<Trouble | null>(null);
  const latest = React.useRef<string | null>(null);
  latest.current = draft;

  const store = async (text: string) => {
    try {
      await save(text);
      setTrouble(null);
    } catch (error) {
      setTrouble(asTrouble(error));
    }
  };
  React.useEffect(() => {
    if (draft === null || draft === value) {
      return;
    }
    const timer = setTimeout(() => void store(draft), SAVE_DELAY_MS);
    return () => clearTimeout(timer);
  }, [draft]);
  // A tab that is closed in the middle of a sentence loses nothing.
  React.useEffect(
    () => () => {
      if (latest.current !== null) {
        void save(latest.current);
      }
    },
    []
  );
  const common = {
    value: draft ?? value,
    onChange: (
      event: React.ChangeEvent<HTMLInputElement | HTMLTextAreaElement>
    ) => setDraft(event.target.value),
    onBlur: () => {
      if (draft !== null && draft !== value) {
        void store(draft);
      }
    }
  };
  const isSaved = draft === null || draft === value;
  return (
    <label>
      <span>
        {label}{' '}
        <span className="llmops-runpanel-saved" role="status">
          {draft !== null && (isSaved ? trans.__('saved') : trans.__('…'))}
        </span>
      </span>
      {rows ? (
        <textarea
          {...common}
          rows={rows}
          maxLength={100_000}
          placeholder={trans.__('What you tried, and the result')}
        />
      ) : (
        <input
          {...common}
          className="jp-mod-styled"
          maxLength={200}
          placeholder={trans.__('A title for this run')}
        />
      )}
      {trouble && <TroubleBox trouble={trouble} />}
    </label>
  );
}
