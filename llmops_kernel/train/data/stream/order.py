"""The order in which each worker trains on the rows. Pure: the same in each attempt."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

WINDOW_BYTES = 32 << 20
"""Rows are shuffled among so many bytes of a worker's parts: what it holds in memory at a time."""


@dataclass(frozen=True)
class StreamPart:
    """What is read at once: a range of bytes of a JSONL file, or a row group of a Parquet file."""

    index: int
    """Among all parts of the data."""
    file: int
    """Number of its file."""
    offset: int
    """JSONL: its first byte; the lines that begin in the part belong to it. Parquet: number of the
    row group."""
    num_bytes: int
    """Parquet: uncompressed."""
    num_rows: int | None = None
    """None for JSONL, whose lines are not counted before they are read."""
    first_row: int = 0
    """Parquet: number of its first row in the file, from 0."""


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a part, all trained on by one worker in one epoch."""

    part: int
    begin: int = 0
    end: int | None = None
    """None: up to the last row, whichever that is."""


@dataclass(frozen=True)
class Window:
    """Pieces of one worker whose rows are shuffled together."""

    epoch: int
    number: int
    """Among the worker's windows of the epoch."""
    pieces: tuple[Piece, ...]


def order(
    parts: Sequence[StreamPart], *, seed: int, epoch: int, world: int, shuffle: bool = True
) -> list[list[Piece]]:
    """Return the pieces of each of `world` workers for one epoch, in the order of reading.

    All parts in a new order each epoch, dealt in `world` runs of equal size: of rows where each
    part states its rows, else of bytes. Only a part that states its rows is cut. Each row is in
    exactly one piece.
    """
    sequence = list(range(len(parts)))
    if shuffle:
        Random(f"{seed}/{epoch}/parts").shuffle(sequence)
    by_rows = all(part.num_rows is not None for part in parts)
    weights = [(part.num_rows or 0) if by_rows else part.num_bytes for part in parts]
    total, passed = sum(weights), 0
    shares: list[list[Piece]] = [[] for _ in range(world)]
    for index in sequence:
        weight = weights[index]
        for rank, piece in _deal(parts[index], weight, passed=passed, total=total, world=world):
            shares[rank].append(piece)
        passed += weight
    return shares


def _deal(
    part: StreamPart, weight: int, *, passed: int, total: int, world: int
) -> Iterator[tuple[int, Piece]]:
    """Yield which worker gets which rows of a part that `passed` of `total` come before."""
    if not weight:
        return
    rows = part.num_rows
    if rows is None:
        yield _rank_at(passed + weight // 2, total, world), Piece(part.index)
        return
    begin, last = 0, _rank_at(passed + weight - 1, total, world)
    for rank in range(_rank_at(passed, total, world), last + 1):
        border = total * (rank + 1) // world - passed
        end = rows if rank == last else border * rows // weight
        if end > begin:
            yield rank, Piece(part.index, begin, end)
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
    held: list[Piece] = []
    size = number = 0
    for piece in pieces:
        num_bytes = parts[piece.part].num_bytes
        if held and size + num_bytes > window_bytes:
            yield Window(epoch, number, tuple(held))
            held, size, number = [], 0, number + 1
        held.append(piece)
        size += num_bytes
    if held:
        yield Window(epoch, number, tuple(held))


def row_order(window: Window, count: int, *, seed: int, rank: int, shuffle: bool) -> Sequence[int]:
    """Return the order of the window's `count` rows, each by its number in the window."""
    if not shuffle:
        return range(count)
    rows = array("Q", range(count))
    Random(f"{seed}/{window.epoch}/{rank}/{window.number}").shuffle(rows)
    return rows
