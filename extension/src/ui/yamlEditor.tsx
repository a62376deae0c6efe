import { Extension } from '@codemirror/state';
import { CodeEditor, IEditorServices } from '@jupyterlab/codeeditor';
import { CodeMirrorEditor } from '@jupyterlab/codemirror';
import * as React from 'react';

/**
 * Lab's own editor with a YAML text, kept the same as `text`.
 */
export function YamlEditor(props: {
  editors: IEditorServices;
  text: string;
  label: string;
  className: string;
  wraps?: boolean;
  extension?: Extension;
  change: (text: string) => void;
}): JSX.Element {
  const host = React.useRef<HTMLDivElement>(null);
  const editor = React.useRef<CodeEditor.IEditor | null>(null);
  const change = React.useRef(props.change);
  change.current = props.change;

  React.useEffect(() => {
    if (!host.current) {
      return;
    }
    const model = new CodeEditor.Model({ mimeType: 'text/x-yaml' });
    model.sharedModel.setSource(props.text);
    model.sharedModel.clearUndoHistory();
    const made = props.editors.factoryService.newDocumentEditor({
      host: host.current,
      model,
      config: { lineNumbers: true, lineWrap: props.wraps ?? false }
    });
    made.host.setAttribute('aria-label', props.label);
    if (props.extension && made instanceof CodeMirrorEditor) {
      made.injectExtension(props.extension);
    }
    editor.current = made;
    const report = () => change.current(model.sharedModel.getSource());
    model.sharedModel.changed.connect(report);
    return () => {
      editor.current = null;
      model.sharedModel.changed.disconnect(report);
      made.dispose();
      model.dispose();
    };
  }, [props.editors]);

  React.useEffect(() => {
    const shared = editor.current?.model.sharedModel;
    if (shared && shared.getSource() !== props.text) {
      shared.setSource(props.text);
      // What the form wrote is undone in the form.
      shared.clearUndoHistory();
    }
  }, [props.text]);

  /** Lab's own undo is for documents; the browser's would change another field. */
  const undo = (event: React.KeyboardEvent) => {
    const key = event.key.toLowerCase();
    if (!(event.ctrlKey || event.metaKey) || (key !== 'z' && key !== 'y')) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    if (key === 'y' || event.shiftKey) {
      editor.current?.redo();
    } else {
      editor.current?.undo();
    }
  };

  return (
    <div
      ref={host}
      className={props.className}
      onKeyDownCapture={undo}
      // Return is a new line here, not the button of a dialog.
      onKeyDown={event => event.key === 'Enter' && event.stopPropagation()}
    />
  );
}
