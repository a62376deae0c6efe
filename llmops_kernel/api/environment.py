"""Whether the caller is a notebook, a terminal or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable

from llmops_kernel.errors import inert


def in_notebook() -> bool:
    """Return True in an IPython kernel: JupyterLab, papermill, nbconvert; not the IPython shell."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


def default_progress() -> Callable[[str], None] | None:
    """Return where a slow call reports progress by default: in a notebook cell's output."""
    return print if in_notebook() else None


class ProgressLine:
    """One line that is rewritten in a terminal; in a pipe each new text is a new line."""

    def __init__(self) -> None:
        self.moves = sys.stdout.isatty()
        self._shown = ""

    def show(self, text: str) -> None:
        text = inert(text)
        if text == self._shown:
            return
        self._shown = text
        if self.moves:
            print(f"\r\x1b[K{text}", end="", flush=True)
        else:
            print(text, flush=True)

    def end(self) -> None:
        if self.moves and self._shown:
            print()
