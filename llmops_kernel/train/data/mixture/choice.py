"""Whether the rows of several sources are streamed: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from llmops_kernel.config.models.sections import DataConfig

Alone = Callable[[DataConfig, Sequence[Path]], bool]
"""Whether a single source is streamed; raises DataError where that is wanted and cannot be."""
BytesOf = Callable[[str, Sequence[Path], str], int | None]
"""Bytes of a source's split that can be streamed; None if it cannot be, such as a hub id."""


def is_mixture_streamed(
    data: DataConfig,
    roots: Sequence[Path],
    *,
    alone: Alone,
    bytes_of: BytesOf,
    large_bytes: int,
) -> bool:
    """Return whether to stream. Raises DataError where that is wanted of what cannot be streamed.

    With `streaming: auto` all sources together are looked at, and one that cannot be streamed
    keeps the others in memory as well.
    """
    if data.streaming is True:
        return all([alone(data.of(source), roots) for source in data.sources])
    if data.streaming is False or data.packing or data.max_rows is not None:
        return False
    splits = [(source.path, source.train_split or "train") for source in data.sources]
    sizes = [bytes_of(path, roots, split) for path, split in splits]
    known = [size for size in sizes if size is not None]
    return len(known) == len(sizes) and sum(known) > large_bytes
