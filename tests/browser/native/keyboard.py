"""What somebody does in Lab who has only the keyboard: no click, no focus that a script sets."""

from __future__ import annotations

from typing import Any

_HAS = "selector => document.activeElement?.matches(selector) ?? false"
_WHAT = """() => {
  const { tagName, className, textContent, ariaLabel } = document.activeElement;
  return `${tagName}.${className} ${ariaLabel ?? textContent.slice(0, 60)}`;
}"""
_PALETTE = ".lm-CommandPalette:visible"


class Keyboard:
    """The keys of one page."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def palette(self, label: str) -> None:
        """Run the command of that name from Lab's palette."""
        self.press("Control+Shift+C")
        self.page.locator(f"{_PALETTE} input").wait_for()
        self.type(label)
        chosen = self.page.locator(f"{_PALETTE} .lm-CommandPalette-item.lm-mod-active")
        chosen.filter(has_text=label).wait_for()
        self.press("Enter")
        self.page.locator(_PALETTE).wait_for(state="detached")

    def go_to(self, selector: str, *, key: str = "Tab", most: int = 60) -> None:
        """Press a key until what matches has the focus."""
        passed = [self.page.evaluate(_WHAT)]
        while not self.page.evaluate(_HAS, selector):
            assert len(passed) <= most, passed
            self.press(key)
            passed.append(self.page.evaluate(_WHAT))
