"""How wide a batch is: the longest sequence, and what devices want widths to be a multiple of."""

from __future__ import annotations

GPU_MULTIPLE = 8
"""Tensor cores want widths that are a multiple of it."""


def width_multiple(*, use_gpu: bool) -> int:
    return GPU_MULTIPLE if use_gpu else 1


def padded_width(longest: int, multiple: int) -> int:
    """Return the width of a batch whose longest sequence has `longest` tokens."""
    return -(-longest // multiple) * multiple
