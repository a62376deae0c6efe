"""Request for rows of a source, and the sample that was read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llmops_kernel.train.data.sources import Row, Source

Columns = Callable[[Sequence[str]], list[str] | None]


@dataclass(frozen=True)
class NumberedRow:
    row: Row
    number: int | None
    """From 1; None where it is not known."""
    find_number: Callable[[], int | str] | None = None
    """Finds it out, or its file too, which may take seconds."""


@dataclass(frozen=True)
class Sample:
    """Rows of a source in their order."""

    rows: list[NumberedRow]
    total: int | None
    """Rows that the run uses; None if that is not known."""
    is_estimate: bool = False
    where: str = ""
    """Description of these rows; empty for all of them."""


def all_columns(names: Sequence[str]) -> list[str] | None:
    del names
    return None


@dataclass(frozen=True)
class RowRequest:
    """The rows of a source that a run uses."""

    source: Source
    limit: int | None
    is_streamed: bool = False
    """True if the run streams them: they may be several files."""
    broken: list[str] | None = None
    """Problems of rows that cannot be read, if the run leaves them out."""
    columns: Columns = all_columns
    """Returns which of a Parquet file's columns make a row; None: all of them."""
    nulls: bool = False
    """Empty values of a CSV are missing ones: no hook reads them."""
    unread: set[str] = field(default_factory=set)
    """Columns that were not read, for no row is made of them."""
