import {
  acceptCompletion,
  autocompletion,
  Completion,
  CompletionContext,
  CompletionResult
} from '@codemirror/autocomplete';
import { Action, Diagnostic, linter, lintKeymap } from '@codemirror/lint';
import { Extension, Prec, Text } from '@codemirror/state';
import { EditorView, hoverTooltip, keymap } from '@codemirror/view';

import { ILLMOps } from '../tokens';
import { trans } from '../trans';
import { ConfigCompletion, ConfigDiagnostic, CursorBody } from '../wire';
import * as requests from './requests';

const LINT_DELAY_MS = 300;
const HOVER_MS = 350;
const WORD = /^[\w.-]*$/;

/**
 * What the extensions of one editor need to know.
 */
interface IAssisted {
  llmops: ILLMOps;
  kind: string;
  /** Contents path of the file, as it is now. */
  path: () => string;
  isChecked: () => boolean;
}

/**
 * Completion, hover and squiggles for one config file.
 */
export function configExtension(assisted: IAssisted): Extension {
  return [
    autocompletion({
      override: [context => proposals(assisted, context)],
      activateOnTyping: true,
      activateOnCompletion: () => true,
      icons: false,
      tooltipClass: () => 'llmops-configs-proposals'
    }),
    hoverTooltip((view, pos) => explanation(assisted, view, pos), {
      hoverTime: HOVER_MS
    }),
    linter(view => mistakes(assisted, view), { delay: LINT_DELAY_MS }),
    Prec.highest(keymap.of([{ key: 'Tab', run: acceptCompletion }])),
    keymap.of(lintKeymap)
  ];
}

function cursor(assisted: IAssisted, doc: Text, pos: number): CursorBody {
  const line = doc.lineAt(pos);
  return {
    kind: assisted.kind,
    path: assisted.path(),
    text: doc.toString(),
    line: line.number,
    column: toCharacters(line.text, pos - line.from)
  };
}

async function proposals(
  assisted: IAssisted,
  context: CompletionContext
): Promise<CompletionResult | null> {
  const abort = new AbortController();
  context.addEventListener('abort', () => abort.abort(), { onDocChange: true });
  const body = cursor(assisted, context.state.doc, context.pos);
  let found: ConfigCompletion[];
  try {
    found = await requests.complete(assisted.llmops, body, abort.signal);
  } catch {
    return null; // The source of the underlines reports that the server does not answer.
  }
  return found.length > 0 ? resultOf(found, context) : null;
}

export function resultOf(
  found: ConfigCompletion[],
  context: { pos: number; state: { doc: Text } }
): CompletionResult {
  const line = context.state.doc.lineAt(context.pos);
  const from = line.from + toUnits(line.text, found[0].replace_from);
  const to = line.from + toUnits(line.text, found[0].replace_to);
  return {
    from,
    to: Math.max(to, context.pos),
    options: found.map((item, index) => optionOf(item, index)),
    // Other spellings are proposed by the first letter: ask again after it.
    validFor: context.pos > from ? WORD : undefined
  };
}

function optionOf(item: ConfigCompletion, index: number): Completion {
  return {
    label: item.label,
    detail: item.detail,
    info: item.documentation
      ? () => markdown(item.documentation, 'llmops-configs-info')
      : undefined,
    apply: item.insert,
    type: item.kind,
    boost: Math.max(-99, 50 - index)
  };
}

async function explanation(assisted: IAssisted, view: EditorView, pos: number) {
  const doc = view.state.doc;
  const found = await requests
    .hover(assisted.llmops, cursor(assisted, doc, pos))
    .catch(() => null);
  if (!found || found.line > doc.lines) {
    return null;
  }
  return {
    pos: offsetAt(doc, found.line, found.column),
    end: offsetAt(doc, found.line, found.end_column),
    above: true,
    create: () => {
      const dom = markdown(found.text, 'llmops-configs-hover');
      const title = document.createElement('strong');
      title.textContent = found.title;
      dom.prepend(title);
      return { dom };
    }
  };
}

async function mistakes(
  assisted: IAssisted,
  view: EditorView
): Promise<Diagnostic[]> {
  const doc = view.state.doc;
  if (!assisted.isChecked() || doc.length === 0) {
    return [];
  }
  const { llmops, kind } = assisted;
  const body = { kind, path: assisted.path(), text: doc.toString() };
  try {
    const { diagnostics, warnings } = await requests.check(llmops, body);
    return marks(doc, [...diagnostics, ...warnings]);
  } catch (error) {
    console.warn('llmops: this config was not checked', error);
    return [];
  }
}

/**
 * The server's findings as CodeMirror's; a mistake in another file is marked where it is named.
 */
export function marks(
  doc: Text,
  found: readonly ConfigDiagnostic[]
): Diagnostic[] {
  return found.map(item => {
    const from = offsetAt(doc, item.line, item.column);
    const to = offsetAt(doc, item.end_line, item.end_column);
    return {
      from,
      to: Math.max(from, to),
      severity: item.severity,
      source: 'llmops',
      message: words(item),
      actions: fixes(item)
    };
  });
}

/** One line for people: field, what is wrong, what would work. */
export function words(item: ConfigDiagnostic): string {
  const where = item.path ? `${item.path}: ` : '';
  const then = item.suggestion ? `; ${item.suggestion}` : '';
  return `${where}${item.message}${then}`;
}

/** The word that would work in the marked place; null when the suggestion is no such word. */
export function replacement(item: ConfigDiagnostic): string | null {
  const found = /^did you mean ([\w./-]+)\?$/.exec(item.suggestion)?.[1];
  const isKey = item.message === 'unknown key';
  return found && !(isKey && found.includes('.')) ? found : null;
}

function fixes(item: ConfigDiagnostic): Action[] {
  const word = replacement(item);
  if (word === null) {
    return [];
  }
  return [
    {
      name: trans.__('Change to %1', word),
      apply: (view, from, to) =>
        view.dispatch({ changes: { from, to, insert: word } })
    }
  ];
}

/**
 * The little markdown that descriptions have: paragraphs, and code in backticks.
 */
export function markdown(text: string, className: string): HTMLElement {
  const root = document.createElement('div');
  root.className = className;
  for (const paragraph of text.split(/\n\s*\n/)) {
    const element = document.createElement('p');
    paragraph.split('`').forEach((part, index) => {
      const isCode = index % 2 === 1;
      const node = isCode ? document.createElement('code') : null;
      if (node) {
        node.textContent = part;
      }
      element.append(node ?? part);
    });
    root.append(element);
  }
  return root;
}

// The server counts columns in characters, editors in UTF-16 units: an emoji is one or two.

/** UTF-16 offset in a line of its character number `column`. */
export function toUnits(line: string, column: number): number {
  let units = 0;
  let seen = 0;
  for (const character of line) {
    if (seen >= column) {
      break;
    }
    units += character.length;
    seen += 1;
  }
  return units;
}

/** The number of characters before a UTF-16 offset of a line. */
export function toCharacters(line: string, units: number): number {
  return [...line.slice(0, units)].length;
}

interface ILine {
  from: number;
  to: number;
  text: string;
}

/** What is needed of CodeMirror's `Text`. */
interface ILines {
  readonly lines: number;
  line(number: number): ILine;
}

/** Offset in a document of a line (from 1) and column (from 0), kept inside it. */
export function offsetAt(doc: ILines, line: number, column: number): number {
  const found = doc.line(Math.min(Math.max(line, 1), doc.lines));
  return Math.min(found.from + toUnits(found.text, column), found.to);
}
