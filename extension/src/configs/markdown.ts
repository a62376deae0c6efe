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
