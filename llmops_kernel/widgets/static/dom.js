// Small DOM helpers. The files of this folder are laid end to end into one ES module by
// run_panel.py (no build step, no import), so they share one scope.

/**
 * @param {string} tag  "div.name" sets a class
 * @param {Record<string, any>} [attributes]  `on...` become listeners, the rest attributes
 * @param {...(Node | string | null | undefined)} children
 */
function h(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.map((c) => `llmops-${c}`).join(" ");
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value == null) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

/** Calls `draw(value)` only when the value differs from last time: keeps focus and open folds. */
function onChange(draw) {
  let last;
  return (value) => {
    const text = JSON.stringify(value);
    if (text === last) return;
    last = text;
    draw(value);
  };
}

/** Text that may be too long: one line with an ellipsis, whole in the tooltip. */
function ellipsed(tag, text) {
  return h(`${tag}.ellipsed`, { title: text }, text);
}

function cssColor(element, name, fallback) {
  return getComputedStyle(element).getPropertyValue(name).trim() || fallback;
}
