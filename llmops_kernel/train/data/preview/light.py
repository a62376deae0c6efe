"""Imports the tokenizer's library without torch: a second instead of four."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from llmops_kernel.errors import HookError


def needs_torch(error: HookError) -> bool:
    """Return whether hooks failed for want of torch, which Transformers' models need."""
    return "torch" in error.message.lower()


@contextmanager
def without_torch() -> Iterator[None]:
    """Inside, torch cannot be imported; Transformers then loads tokenizers alone, also afterwards.

    Does nothing where hooks have imported either.
    """
    if sys.modules.keys() & {"torch", "transformers"}:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # what Python calls a blocked import
    try:
        yield
    finally:
        del sys.modules["torch"]
