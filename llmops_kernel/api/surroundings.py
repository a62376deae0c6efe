"""Where the caller sits: a notebook, a terminal or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable


def in_notebook() -> bool:
    """True inside an IPython kernel: JupyterLab, papermill, nbconvert; not the IPython shell."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


def default_progress() -> Callable[[str], None] | None:
    """Where a slow call tells what it does when its caller does not say: in the cell's output."""
    return print if in_notebook() else None


class ProgressLine:
    """One line that moves in a terminal; in a pipe a new line whenever the text is new."""

    def __init__(self) -> None:
        self._moves = sys.stdout.isatty()
        self._shown = ""

    def show(self, text: str) -> None:
        if text == self._shown:
            return
        self._shown = text
        if self._moves:
            print(f"\r\x1b[K{text}", end="", flush=True)
        else:
            print(text, flush=True)

    def end(self) -> None:
        if self._moves and self._shown:
            print()
