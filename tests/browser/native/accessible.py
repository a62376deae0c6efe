"""axe-core on what is ours in a page; Lab's own elements around it are Lab's."""

from __future__ import annotations

from typing import Any

from tests.browser.lab import ROOT

_AXE = ROOT / "extension/node_modules/axe-core/axe.min.js"
# Lab's editor and pages of others inside ours are not ours to mend.
_FOREIGN = ["iframe", ".cm-editor", ".jp-ToolbarButtonComponent"]
_RUN = """async ([selectors, foreign]) => {
  const there = selectors.filter(one => document.querySelector(one));
  if (there.length < selectors.length) {
    return [`nothing matches ${selectors.filter(one => !there.includes(one)).join(' and ')}`];
  }
  const context = { include: selectors.map(one => [one]), exclude: foreign.map(one => [one]) };
  const found = await axe.run(context);
  if (found.passes.length < 5) {
    return [`only ${found.passes.length} rules looked at something`];
  }
  return found.violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .flatMap(({ id, help, nodes }) => nodes.map(({ html, any, all, none }) => {
      const why = [...any, ...all, ...none].map(({ message }) => message).join('; ');
      return `${id}: ${help}: ${html.slice(0, 200)}: ${why}`;
    }));
}"""


def assert_accessible(page: Any, *selectors: str) -> None:
    """Assert that no element below the selectors has a serious or critical fault."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(_AXE.read_text(encoding="utf-8"))
    faults = page.evaluate(_RUN, [list(selectors), _FOREIGN])
    assert faults == [], "\n".join(faults)
