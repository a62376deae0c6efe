"""A row of a table, and the rows of a part."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class TableRow:
    """One row of the table."""

    number: int
    """Its number among all rows of the table, from 0 unless `divide` was asked for another."""
    values: dict[str, Any]
    error: str = ""
    """Why it could not be read, and where it is."""
    raw: str = ""
    """What was there instead, for a row that could not be read."""


@dataclass
class PartRows:
    """The rows of a part, with their columns as Arrow where the file has them."""

    rows: list[TableRow]
    table: Any = field(default=None)
    """pyarrow.Table of Parquet and Arrow files; None for text."""


def raw(text: bytes) -> str:
    """Return the text of a row that could not be read."""
    return text.decode(errors="replace").strip()
