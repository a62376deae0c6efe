"""An error of a magic: its message and what to do next, without a traceback of our code."""

from __future__ import annotations

from llmops_kernel.errors import LLMOpsError

_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


class MagicError(Exception):
    """Fails the cell, so that papermill stops at it too; IPython prints no traceback of it."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    @classmethod
    def of(cls, error: LLMOpsError) -> MagicError:
        """Return the failure of a cell for an error of a run, a config or a cluster."""
        return cls(error.message, remedy=error.remedy)

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython prints in place of a traceback."""
        first = f"{_RED}{self.message}{_PLAIN}"
        return [first, f"  Try: {self.remedy}"] if self.remedy else [first]
