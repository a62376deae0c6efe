"""Parts of a table: consecutive rows that a worker reads, and reads again, together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llmops_kernel.errors import DataError


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a file."""

    offset: int
    """Text: of the first byte. Parquet and Arrow: number of the first row in its file."""
    num_rows: int
    num_bytes: int = 0
    """Text: up to the end of the last row."""
    line: int = 0
    """Text: lines before it in the file."""


@dataclass(frozen=True)
class Part:
    """Consecutive rows of one file."""

    index: int
    """Counted from 0; the output's file is named by it."""
    url: str
    format: str
    first_row: int
    """Number of its first row among all rows of the table."""
    num_rows: int
    offset: int
    """As of `Piece`."""
    num_bytes: int = 0
    """As of `Piece`."""
    line: int = 0
    """As of `Piece`."""
    name: str = ""
    """Name of the file, for people."""


@dataclass(frozen=True)
class Plan:
    """The parts of a table; equal for each attempt, so that a retry finds what is finished."""

    parts: tuple[Part, ...]
    fingerprint: str
    """Hash of files, versions and limits: another one means that the table has changed."""

    @property
    def num_rows(self) -> int:
        return sum(part.num_rows for part in self.parts)


def unreadable(url: str, error: Exception) -> DataError:
    return DataError(
        f"{url} cannot be read: {error}",
        remedy="check that the file is whole, and that the cluster's nodes may read it",
    )


# --- Rows of a part ---


@dataclass(slots=True)
class TableRow:
    """A row of the table."""

    number: int
    """Its number among all rows of the table, from 0 unless `divide` was asked for another."""
    values: dict[str, Any]
    error: str = ""
    """Reason why it could not be read, and where it is."""
    raw: str = ""
    """Original text of a row that could not be read."""


@dataclass
class PartRows:
    """The rows of a part, with their columns as Arrow where the file has them."""

    rows: list[TableRow]
    table: Any = field(default=None)
    """pyarrow.Table of Parquet and Arrow files; None for text."""


def raw(text: bytes) -> str:
    """Return the text of a row that could not be read."""
    return text.decode(errors="replace").strip()
