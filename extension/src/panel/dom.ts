/** Elements by a short form: the panel has no framework, so that a notebook's widget stays small. */

type Child = Node | string | null | undefined;
type Attribute =
  string | number | boolean | null | undefined | ((event: never) => void);

/** `div` of `div.name`. */
type TagOf<Name extends string> = Name extends `${infer Tag}.${string}`
  ? Tag
  : Name;
type ElementOf<Name extends string> =
  TagOf<Name> extends keyof HTMLElementTagNameMap
    ? HTMLElementTagNameMap[TagOf<Name>]
    : HTMLElement;

/**
 * Return a new element. `div.name` has the class `llmops-name`; attributes that begin with `on`
 * are listeners.
 */
export function h<Name extends string>(
  name: Name,
  attributes: Record<string, Attribute> = {},
  ...children: Child[]
): ElementOf<Name> {
  const [tag, ...classes] = name.split('.');
  const element = document.createElement(tag);
  if (classes.length) {
    element.className = classes.map(part => `llmops-${part}`).join(' ');
  }
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === 'function') {
      element.addEventListener(key.slice(2), value as EventListener);
    } else if (value !== false && value != null) {
      element.setAttribute(key, value === true ? '' : String(value));
    }
  }
  element.append(...children.filter(child => child != null));
  return element as ElementOf<Name>;
}

export function button(
  text: string,
  onclick: () => void,
  attributes: Record<string, string> = {}
): HTMLButtonElement {
  return h('button.button', { type: 'button', onclick, ...attributes }, text);
}

/**
 * Return a function that calls `draw` only with another value than last time: keeps focus and
 * open folds.
 */
export function onChange<Value>(
  draw: (value: Value) => void
): (value: Value) => void {
  let last: string | undefined;
  return value => {
    const text = JSON.stringify(value);
    if (text !== last) {
      last = text;
      draw(value);
    }
  };
}

export function cssColor(
  element: Element,
  name: string,
  fallback: string
): string {
  return getComputedStyle(element).getPropertyValue(name).trim() || fallback;
}
