"""The order in which each worker trains on the rows. Pure: the same in each attempt."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor
from random import Random

from llmops_kernel.train.data.mixture import exact

__all__ = ["WINDOW_BYTES", "Piece", "StreamPart", "Window", "order", "row_order", "windows"]
WINDOW_BYTES = 32 << 20
"""Rows are shuffled among so many bytes of a worker's parts: what it holds in memory at a time."""


@dataclass(frozen=True)
class Window:
    """Pieces of one worker whose rows are shuffled together."""

    epoch: int
    number: int
    """Among the worker's windows of the epoch."""
    pieces: tuple[Piece, ...]


def order(
    parts: Sequence[StreamPart],
    *,
    seed: int,
    epoch: int,
    world: int,
    shuffle: bool = True,
    weight: float = 1.0,
) -> list[list[Piece]]:
    """Return the pieces of each of `world` workers for one epoch, in the order of reading.

    All parts in a new order each epoch, dealt in `world` runs of equal size: of rows where each
    part states its rows, else of bytes. Only a part that states its rows is cut. Each row is in
    exactly one piece, or in as many as the weight says.
    """
    if weight == 1:
        pieces = [Piece(part.index, 0, part.num_rows) for part in parts]
    else:
        pieces = drawn(parts, weight=weight, seed=seed, epoch=epoch, shuffle=shuffle)
    if shuffle:
        Random(f"{seed}/{epoch}/parts").shuffle(pieces)
    by_rows = all(part.num_rows is not None for part in parts)
    sizes = [_size(parts[piece.part], piece, by_rows=by_rows) for piece in pieces]
    total, passed = sum(sizes), 0
    shares: list[list[Piece]] = [[] for _ in range(world)]
    for piece, size in zip(pieces, sizes, strict=True):
        for rank, dealt in _deal(piece, size, passed=passed, total=total, world=world):
            shares[rank].append(dealt)
        passed += size
    return shares


def _size(part: StreamPart, piece: Piece, *, by_rows: bool) -> int:
    """Return the rows of a piece, or its bytes."""
    if piece.end is None or not part.num_rows:
        return 0 if by_rows or piece.end is not None else part.num_bytes
    rows = piece.end - piece.begin
    return rows if by_rows else part.num_bytes * rows // part.num_rows


def _deal(
    piece: Piece, size: int, *, passed: int, total: int, world: int
) -> Iterator[tuple[int, Piece]]:
    """Yield which worker gets which rows of a piece that `passed` of `total` come before."""
    if not size:
        return
    if piece.end is None:
        yield _rank_at(passed + size // 2, total, world), piece
        return
    rows = piece.end - piece.begin
    begin, last = 0, _rank_at(passed + size - 1, total, world)
    for rank in range(_rank_at(passed, total, world), last + 1):
        border = total * (rank + 1) // world - passed
        end = rows if rank == last else border * rows // size
        if end > begin:
            yield rank, Piece(piece.part, piece.begin + begin, piece.begin + end)
        begin = end


def _rank_at(position: int, total: int, world: int) -> int:
    """Return the worker whose run of `total` includes this position."""
    rank = position * world // total
    while position >= total * (rank + 1) // world:
        rank += 1
    while position < total * rank // world:
        rank -= 1
    return rank


def windows(
    pieces: Sequence[Piece],
    parts: Sequence[StreamPart],
    *,
    epoch: int,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[Window]:
    """Divide a worker's pieces into windows: at least one piece, or what is in so many bytes."""
    batch: list[Piece] = []
    read: set[int] = set()
    size = number = 0
    for piece in pieces:
        num_bytes = parts[piece.part].num_bytes
        if batch and piece.part not in read and size + num_bytes > window_bytes:
            yield Window(epoch, number, tuple(batch))
            batch, size, number = [], 0, number + 1
            read.clear()
        size += 0 if piece.part in read else num_bytes
        read.add(piece.part)
        batch.append(piece)
    if batch:
        yield Window(epoch, number, tuple(batch))


def row_order(window: Window, count: int, *, seed: int, rank: int, shuffle: bool) -> Sequence[int]:
    """Return the order of the window's `count` rows, each by its number in the window."""
    if not shuffle:
        return range(count)
    rows = array("Q", range(count))
    Random(f"{seed}/{window.epoch}/{rank}/{window.number}").shuffle(rows)
    return rows


# --- Weighted sources. Pure ---
# The parts stand in a circle, in an order of their own, and each epoch continues where the one
# before has stopped: so each row is seen `weight` times an epoch, and never twice before all
# others were.


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
    position = begin // total * total
    while position < end:
        for part, size in zip(circle, sizes, strict=True):
            piece = _overlap(part, size, begin - position, end - position)
            if piece is not None:
                yield piece
            position += size


def _overlap(part: StreamPart, size: int, begin: int, end: int) -> Piece | None:
    """Return what of a part is between two positions, counted from its own first one."""
    if not size or begin >= size or end <= 0:
        return None
    rows = part.num_rows
    if rows is None:
        return Piece(part.index) if begin <= size // 2 < end else None
    first, last = max(0, begin) * rows // size, min(size, end) * rows // size
    return Piece(part.index, first, last) if last > first else None


# --- Parts of a stream, and pieces of them that one worker trains on ---


@dataclass(frozen=True)
class StreamPart:
    """A unit of reading: a range of bytes of lines, or rows of a file of columns."""

    index: int
    """Among all parts of the data."""
    file: int
    """Number of its file."""
    offset: int
    """JSONL and text: its first byte; the lines that begin in the part belong to it. Parquet:
    number of the row group. Arrow: number among the parts of its file."""
    num_bytes: int
    """Parquet: uncompressed. Arrow: an estimate."""
    num_rows: int | None = None
    """None for JSONL and text whose lines are not counted before they are read."""
    first_row: int = 0
    """Parquet and Arrow: number of its first row in the file, from 0."""


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a part, all trained on by one worker in one epoch."""

    part: int
    begin: int = 0
    end: int | None = None
    """None: up to the last row, whichever that is."""
