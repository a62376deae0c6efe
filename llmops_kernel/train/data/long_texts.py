"""Split a text longer than `max_length` into pieces, and cut any other row. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llmops_kernel.config.models.sections import DataConfig


def piece_ends(size: int, max_length: int) -> list[int]:
    """Return where the pieces of a text of `size` tokens end.

    Consecutive pieces of `max_length` tokens, which do not overlap. A single token at the end
    would have none before it that predicts it: the piece before is then one token shorter.
    """
    ends = [*range(max_length, size, max_length), size]
    if len(ends) > 1 and ends[-1] - ends[-2] == 1:
        ends[-2] -= 1
    return ends


def is_divided(row: Mapping[str, Any], size: int, data: DataConfig) -> bool:
    """Return whether a formatted row of so many tokens becomes several sequences."""
    return "text" in row and data.long_texts == "split" and size > data.max_length


def may_divide(data: DataConfig, *, has_hook: bool) -> bool:
    """Return whether some row may become several sequences."""
    return data.long_texts == "split" and (data.format in ("auto", "text") or has_hook)


def parts_of(tokens: Sequence[int], ends: Sequence[int]) -> list[list[int]]:
    """Return the tokens of each piece."""
    return [list(tokens[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]
