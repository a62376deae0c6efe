import { ILayoutPane, ILayoutPlan } from '../tokens';
import { PAGE_NAMES } from './pages';

export const MODES: readonly ILayoutPane['mode'][] = [
  'split-top',
  'split-left',
  'split-right',
  'split-bottom',
  'tab-before',
  'tab-after'
];

/** `run`, `dashboard`, and `dashboard-<page>`. */
export const PANE_NAMES: readonly string[] = [
  'run',
  'dashboard',
  ...PAGE_NAMES.map(page => `dashboard-${page}`)
];

export function isMode(value: unknown): value is ILayoutPane['mode'] {
  return MODES.some(mode => mode === value);
}

/**
 * The page that a pane shows, empty for the whole dashboard; null for a pane that is none.
 */
export function pageOf(pane: string): string | null {
  return pane.startsWith('dashboard') && PANE_NAMES.includes(pane)
    ? pane.slice('dashboard-'.length)
    : null;
}

/**
 * The panes of a plan, each after the one that it is placed beside. References that lead round in
 * a circle, or to no pane of the plan, are left out.
 */
export function inOrder(plan: ILayoutPlan): [string, ILayoutPane][] {
  const done = new Map<string, ILayoutPane>();
  const visit = (name: string, above: readonly string[]): void => {
    const pane = plan[name];
    if (!pane || done.has(name)) {
      return;
    }
    const { mode, ref } = pane;
    const isGood =
      ref !== null && ref in plan && ![...above, name].includes(ref);
    if (isGood) {
      visit(ref, [...above, name]);
    }
    done.set(name, { mode, ref: isGood ? ref : null });
  };
  Object.keys(plan).forEach(name => visit(name, []));
  return [...done];
}

/** What a user wrote into the settings; what is no pane is left out. */
export function readPlan(value: unknown): ILayoutPlan {
  const plan: Record<string, ILayoutPane> = {};
  for (const [name, pane] of Object.entries(value ?? {})) {
    const { mode, ref } = (pane ?? {}) as Record<string, unknown>;
    if (PANE_NAMES.includes(name)) {
      plan[name] = {
        mode: isMode(mode) ? mode : 'tab-after',
        ref: typeof ref === 'string' ? ref : null
      };
    }
  }
  return plan;
}
