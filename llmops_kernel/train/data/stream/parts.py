"""Parts of a stream, and pieces of them that one worker trains on."""

from __future__ import annotations

from dataclasses import dataclass


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
