import { TemplateInfo } from '../../wire';

const KEY = 'llmops:cluster-drafts';

/**
 * What was typed over each template and not started yet. It outlives the form and a reload of
 * the page, not the browser's tab: a text may have variables that belong in no other place.
 */
export class Drafts {
  constructor(
    private memory: Pick<Storage, 'getItem' | 'setItem'> = window.sessionStorage
  ) {}

  /** The text of a template as it was left; null where it was not changed. */
  of(template: TemplateInfo): string | null {
    const draft = this.all[keyOf(template)];
    return draft && draft !== template.text ? draft : null;
  }

  /** Keep a text, or forget it where it is that of the template itself. */
  keep(template: TemplateInfo, text: string): void {
    const all = this.all;
    delete all[keyOf(template)];
    if (text !== template.text) {
      all[keyOf(template)] = text;
    }
    this.memory.setItem(KEY, JSON.stringify(all));
  }

  private get all(): Record<string, string> {
    try {
      const found: unknown = JSON.parse(this.memory.getItem(KEY) ?? '{}');
      return typeof found === 'object' && found !== null
        ? (found as Record<string, string>)
        : {};
    } catch {
      return {};
    }
  }
}

function keyOf({ name, path }: TemplateInfo): string {
  return path ?? `:${name}`;
}
