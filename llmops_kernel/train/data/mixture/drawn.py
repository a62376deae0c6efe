"""Which rows of a source an epoch has, where its weight is not 1. Pure.

The parts stand in a circle, in an order of their own, and each epoch continues where the one before
has stopped: so each row is seen `weight` times an epoch, and never twice before all others were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor
from random import Random

from llmops_kernel.train.data.mixture.rows import exact
from llmops_kernel.train.data.stream.parts import Piece, StreamPart


def drawn(
    parts: Sequence[StreamPart], *, weight: float, seed: int, epoch: int, shuffle: bool
) -> list[Piece]:
    """Return the pieces that one epoch has of a source, on all workers together.

    Rows are counted where all parts state them, else bytes. A part that does not state its rows is
    in the epoch in which its middle is.
    """
    circle = list(parts)
    if shuffle and weight != int(weight):
        Random(f"{seed}/circle").shuffle(circle)
    by_rows = all(part.num_rows is not None for part in circle)
    sizes = [(part.num_rows or 0) if by_rows else part.num_bytes for part in circle]
    total = sum(sizes)
    if not total:
        return []
    begin, end = (floor(exact(weight) * total * number) for number in (epoch, epoch + 1))
    return list(_between(circle, sizes, begin, end))


def _between(
    circle: Sequence[StreamPart], sizes: Sequence[int], begin: int, end: int
) -> Iterator[Piece]:
    """Yield what is between two positions of the endless way round the circle."""
    total = sum(sizes)
    at = begin // total * total
    while at < end:
        for part, size in zip(circle, sizes, strict=True):
            piece = _overlap(part, size, begin - at, end - at)
            if piece is not None:
                yield piece
            at += size


def _overlap(part: StreamPart, size: int, begin: int, end: int) -> Piece | None:
    """Return what of a part is between two positions, counted from its own first one."""
    if not size or begin >= size or end <= 0:
        return None
    rows = part.num_rows
    if rows is None:
        return Piece(part.index) if begin <= size // 2 < end else None
    first, last = max(0, begin) * rows // size, min(size, end) * rows // size
    return Piece(part.index, first, last) if last > first else None
