import { forceLinting, setDiagnostics } from '@codemirror/lint';
import { Compartment } from '@codemirror/state';
import { EditorView } from '@codemirror/view';
import { MainAreaWidget } from '@jupyterlab/apputils';
import { CodeMirrorEditor } from '@jupyterlab/codemirror';
import { IDocumentWidget } from '@jupyterlab/docregistry';
import { FileEditor } from '@jupyterlab/fileeditor';
import {
  checkIcon,
  closeIcon,
  ReactWidget,
  runIcon,
  ToolbarButton
} from '@jupyterlab/ui-components';
import { DisposableSet } from '@lumino/disposable';
import * as React from 'react';

import { asTrouble } from '../api';
import { CommandIDs } from '../commands';
import { dataIcon, planIcon, submitIcon } from '../icons';
import { ILLMOps, IPreferences } from '../tokens';
import { trans } from '../trans';
import { IconButton, TroubleBox } from '../ui/parts';
import { ConfigCheck, ConfigDiagnostic, ConfigKind, Trouble } from '../wire';
import { ClusterChoice } from './choice';
import { ClusterChooser } from './chooser';
import { configExtension, marks, offsetAt } from './editor';
import { Checking, Findings } from './findings';
import { Kinds } from './kinds';
import { check } from './requests';

const MOST_HEIGHT = 240;
const CLASS = 'llmops-configs-editor';

type Editor = IDocumentWidget<FileEditor>;

export interface IEditorServices {
  llmops: ILLMOps;
  kinds: Kinds;
  preferences: IPreferences;
  choice: ClusterChoice;
  localPath: (path: string) => string;
  onSubmit: (editor: AssistedEditor) => void;
  /** Opens a view of this config by the command that shows it. */
  onView: (command: string, path: string) => void;
  onStart: (path: string) => void;
  onNewCluster: () => void;
}

/**
 * Gives a file editor what its kind of config offers; takes it away when the file is renamed
 * to something else.
 */
export class AssistedEditor {
  constructor(
    readonly widget: Editor,
    private services: IEditorServices
  ) {
    const editor = widget.content.editor;
    if (editor instanceof CodeMirrorEditor) {
      this._view = editor.editor;
      editor.injectExtension(this._compartment.of([]));
    }
    widget.context.pathChanged.connect(() => this.adapt());
    widget.context.model.contentChanged.connect(() => this._answer?.age());
    services.preferences.changed.connect(this.relint, this);
    widget.disposed.connect(() => {
      services.preferences.changed.disconnect(this.relint, this);
      this._checking.abort();
      this._parts.dispose();
    });
    this.adapt();
  }

  get kind(): ConfigKind | null {
    return this._kind;
  }

  /** Contents path without its drive. */
  get path(): string {
    return this.services.localPath(this.widget.context.path);
  }

  get text(): string {
    return this.widget.content.model.sharedModel.getSource();
  }

  get view(): EditorView | null {
    return this._view;
  }

  /** Check text and files; the answer stands above the text. Saves nothing. */
  async check(): Promise<void> {
    const kind = this._kind;
    if (!kind) {
      return;
    }
    const answer = this.answer();
    this._checking.abort();
    const { signal } = (this._checking = new AbortController());
    answer.report({ busy: true });
    try {
      const body = {
        kind: kind.name,
        path: this.path,
        text: this.text,
        with_files: true,
        closely: true
      };
      const found = await check(this.services.llmops, body, signal);
      answer.report({ check: found });
      this.mark([...found.diagnostics, ...found.warnings]);
    } catch (error) {
      if (!signal.aborted) {
        answer.report({ trouble: asTrouble(error) });
      }
    }
  }

  private adapt(): void {
    const kind = this.services.kinds.of(this.path);
    if (kind?.name === this._kind?.name) {
      return;
    }
    this._kind = kind;
    this._parts.dispose();
    this._parts = new DisposableSet();
    this._answer = null;
    this.widget.content.toggleClass(CLASS, kind !== null);
    this.reconfigure(kind);
    if (kind) {
      this.addButtons(kind);
    }
  }

  private reconfigure(kind: ConfigKind | null): void {
    const { llmops, preferences } = this.services;
    const extension = kind
      ? configExtension({
          llmops,
          kind: kind.name,
          path: () => this.path,
          isChecked: () => preferences.checkWhileTyping
        })
      : [];
    this._view?.dispatch({ effects: this._compartment.reconfigure(extension) });
  }

  private addButtons(kind: ConfigKind): void {
    const { choice, onSubmit, onStart, onNewCluster } = this.services;
    this.addToToolbar(
      'llmops-check',
      new ToolbarButton({
        className: 'llmops-configs-button',
        icon: checkIcon,
        label: trans.__('Check'),
        tooltip: trans.__(
          'Check this file and what it names: files, some rows, the model’s tokenizer. Saves nothing'
        ),
        onClick: () => void this.check()
      })
    );
    if (!kind.is_run) {
      this.addToToolbar(
        'llmops-start',
        new ToolbarButton({
          className: 'llmops-configs-button',
          icon: runIcon,
          label: trans.__('Start'),
          tooltip: trans.__('Save the file and start this cluster'),
          onClick: () => void this.save().then(() => onStart(this.path))
        })
      );
      return;
    }
    if (kind.name === 'train') {
      this.addViews();
    }
    this.addToToolbar(
      'llmops-cluster',
      new ClusterChooser(choice, onNewCluster)
    );
    this.addToToolbar(
      'llmops-submit',
      new ToolbarButton({
        className: 'llmops-configs-button',
        icon: submitIcon,
        label: trans.__('Submit'),
        tooltip: trans.__('Save the file and submit it to the chosen cluster'),
        onClick: () => onSubmit(this)
      })
    );
  }

  private addViews(): void {
    const { onView } = this.services;
    const views = [
      {
        id: CommandIDs.showData,
        icon: dataIcon,
        label: trans.__('Data'),
        tooltip: trans.__(
          'Show the rows as the model will see them, without starting anything'
        )
      },
      {
        id: CommandIDs.showPlan,
        icon: planIcon,
        label: trans.__('Plan'),
        tooltip: trans.__(
          'Show memory, speed and cost that are expected, without starting anything'
        )
      }
    ];
    views.forEach(({ id, ...button }) =>
      this.addToToolbar(
        id.replace(':show', ''),
        new ToolbarButton({
          className: 'llmops-configs-button',
          ...button,
          onClick: () => onView(id, this.path)
        })
      )
    );
  }

  async save(): Promise<void> {
    const { context } = this.widget;
    if (context.model.dirty) {
      await context.save();
    }
  }

  private addToToolbar(name: string, part: ReactWidget | ToolbarButton): void {
    this.widget.toolbar.addItem(name, part);
    this._parts.add(part);
  }

  private answer(): Answer {
    if (!this._answer) {
      this._answer = new Answer(item => this.go(item));
      if (this.widget instanceof MainAreaWidget) {
        this.widget.contentHeader.addWidget(this._answer);
      }
      this._parts.add(this._answer);
    }
    return this._answer;
  }

  private mark(found: readonly ConfigDiagnostic[]): void {
    const view = this._view;
    if (view) {
      const { state } = view;
      const shown = marks(state.doc, found);
      view.dispatch(setDiagnostics(state, shown));
    }
  }

  private go(item: ConfigDiagnostic): void {
    const view = this._view;
    if (view) {
      const { doc } = view.state;
      const anchor = offsetAt(doc, item.line, item.column);
      const head = offsetAt(doc, item.end_line, item.end_column);
      view.dispatch({ selection: { anchor, head }, scrollIntoView: true });
      view.focus();
    }
  }

  private relint(): void {
    if (this._view && this._kind) {
      forceLinting(this._view);
    }
  }

  private _view: EditorView | null = null;
  private _kind: ConfigKind | null = null;
  private _compartment = new Compartment();
  private _parts = new DisposableSet();
  private _answer: Answer | null = null;
  private _checking = new AbortController();
}

interface IAnswerState {
  busy?: boolean;
  check?: ConfigCheck;
  isOld?: boolean;
  trouble?: Trouble;
}

/**
 * The line between toolbar and text with the result of a check.
 */
class Answer extends ReactWidget {
  constructor(private onGo: (item: ConfigDiagnostic) => void) {
    super();
    this.addClass('llmops-configs-answer');
  }

  report(state: IAnswerState): void {
    this._state = state;
    this.show();
    this.update();
  }

  /** The text was edited after it was checked. */
  age(): void {
    if (this._state.check && !this._state.isOld) {
      this._state = { ...this._state, isOld: true };
      this.update();
    }
  }

  override dispose(): void {
    this._sizes.disconnect();
    super.dispose();
  }

  protected override render(): JSX.Element {
    const { onGo } = this;
    const { busy, check: found, isOld, trouble } = this._state;
    return (
      <>
        <div className="llmops-configs-findings" ref={this._watch}>
          {isOld && (
            <div className="llmops-configs-old" role="status">
              {trans.__('The text was changed after this check.')}
            </div>
          )}
          {busy && <Checking />}
          {trouble && <TroubleBox trouble={trouble} />}
          {found && <Findings check={found} onGo={onGo} />}
        </div>
        <IconButton
          icon={closeIcon}
          label={trans.__('Close this message')}
          onClick={() => this.hide()}
        />
      </>
    );
  }

  // Lumino's layout asks for a height before React has drawn.
  private _sizes = new ResizeObserver(([entry]) => {
    const height = Math.min(entry.target.scrollHeight + 2, MOST_HEIGHT);
    this.node.style.minHeight = `${height}px`;
    this.parent?.fit();
  });
  private _watch = (element: HTMLElement | null): void => {
    if (element) {
      this._sizes.observe(element);
    }
  };
  private _state: IAnswerState = {};
}
