"""The hooks of a training config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmops_kernel.driver.hooks import call, hook_numbers, load_functions

__all__ = ["HOOK_NAMES", "Hooks", "call", "hook_numbers", "load_hooks"]

HOOK_NAMES = ("format_example", "build_model", "compute_metrics", "score_row", "callbacks")


@dataclass(frozen=True)
class Hooks:
    """The user's functions; each is None when the file does not define it."""

    format_example: Callable[[dict[str, Any]], Any] | None = None
    build_model: Callable[[Any], Any] | None = None
    compute_metrics: Callable[..., dict[str, float]] | None = None
    score_row: Callable[..., dict[str, float | None]] | None = None
    callbacks: Callable[[], list[Any]] | None = None


def load_hooks(file: Path | None) -> Hooks:
    """Execute the user's file as a module and return its hooks. Raises HookError."""
    return Hooks() if file is None else Hooks(**load_functions(file, HOOK_NAMES))
