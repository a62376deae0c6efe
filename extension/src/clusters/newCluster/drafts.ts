import { TemplateInfo } from '../../wire';

const KEY = 'llmops:cluster-drafts';

/** A text, and whether it was edited by hand: fields do not write over such a text. */
export interface IDraft {
  text: string;
  isOwn: boolean;
}

/**
 * What was typed over each template and not started yet. It outlives the form and a reload of
 * the page, not the browser's tab: a text may have variables that belong in no other place.
 */
export class Drafts {
  constructor(
    private memory: Pick<Storage, 'getItem' | 'setItem'> = window.sessionStorage
  ) {}

  /** A template as it was left; null where it was not changed. */
  of(template: TemplateInfo): IDraft | null {
    const draft = this.all[keyOf(template)];
    return draft?.text && draft.text !== template.text ? draft : null;
  }

  /** Keep a draft, or forget it where its text is that of the template itself. */
  keep(template: TemplateInfo, draft: IDraft): void {
    const all = this.all;
    delete all[keyOf(template)];
    if (draft.text !== template.text) {
      all[keyOf(template)] = draft;
    }
    this.memory.setItem(KEY, JSON.stringify(all));
  }

  private get all(): Record<string, IDraft | undefined> {
    try {
      const found: unknown = JSON.parse(this.memory.getItem(KEY) ?? '{}');
      return typeof found === 'object' && found !== null
        ? (found as Record<string, IDraft | undefined>)
        : {};
    } catch {
      return {};
    }
  }
}

function keyOf({ name, path }: TemplateInfo): string {
  return path ?? `:${name}`;
}
