"""The rows of a run's charts as 32-bit floats, as they are sent to the browser."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from llmops_kernel.kinds.kind import Column
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import Event
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views.panel import RunColumn


def columns_of(view: RunView) -> tuple[Column, ...]:
    return kind_named(view.kind).all_columns(view)


def run_columns(columns: Iterable[Column]) -> list[RunColumn]:
    """Return the columns as the browser reads them; a buffer's rows have this order."""
    return [RunColumn(name=c.name, label=c.label, unit=c.unit) for c in columns]


def curve_of(view: RunView) -> tuple[str, str]:
    """Return (name, label) of the column that is the kind's main curve; empty without one."""
    kind = kind_named(view.kind)
    column = kind.column(kind.curve)
    return ("", "") if column is None else (column.name, column.label)


def x_label(view: RunView) -> str:
    columns = columns_of(view)
    return columns[0].label if columns else ""


def points_of(view: RunView, name: str) -> list[tuple[float, float]]:
    """Return (x, value) of each row whose value of that column is known, NaN included."""
    columns = columns_of(view)
    column = next((column for column in columns if column.name == name), None)
    if column is None:
        return []
    x = columns[0].value
    points = ((x(row), column.value(row)) for row in view.rows)
    return [
        (position, value)
        for position, value in points
        if position is not None and value is not None
    ]


def speed_of(views: Sequence[RunView]) -> Column | None:
    """Return the first speed of the runs' kind that all of them have, else that one of them has."""
    kind = kind_named(views[0].kind)
    speeds = [column for name in kind.speeds if (column := kind.column(name)) is not None]
    has_points = {c.name: [bool(points_of(view, c.name)) for view in views] for c in speeds}
    first = [c for c in speeds if all(has_points[c.name])] + [
        c for c in speeds if any(has_points[c.name])
    ]
    return next(iter(first + speeds[-1:]), None)


def speed_title(column: Column | None) -> str:
    """Return `MFU, %`, `tokens per second`."""
    if column is None:
        return "speed"
    return column.label.replace("/s", " per second") + (", %" if column.unit == "fraction" else "")


def speed_scale(column: Column) -> float:
    """Return what a value is multiplied by to be drawn: fractions are drawn in percent."""
    return 100.0 if column.unit == "fraction" else 1.0


def row_bytes(columns: Sequence[Any]) -> int:
    return 4 * len(columns)


def pack(rows: Sequence[Any], columns: Sequence[Column]) -> bytes:
    """Return row after row; an unknown number is NaN. Step numbers are exact up to 2**24."""
    width = len(columns)
    packed = array("f", bytes(4 * width * len(rows)))
    logged = [index for index, column in enumerate(columns) if column.is_logged]
    for index, column in enumerate(columns):
        if not column.is_logged:
            packed[index::width] = _packed_column(rows, column)
    if logged:
        _pack_logged(packed, rows, [columns[index].name for index in logged], first=logged[0])
    return packed.tobytes()


def _pack_logged(
    packed: array[float], rows: Sequence[Any], names: list[str], *, first: int
) -> None:
    """Pack the further numbers, whose columns are side by side: hundreds take a row at a time."""
    width, count = len(packed) // max(1, len(rows)), len(names)
    for index, row in enumerate(rows):
        values = row.values or {}
        numbers = values.values() if list(values) == names else map(values.get, names)
        offset = index * width + first
        packed[offset : offset + count] = array(
            "f", [math.nan if n is None else n for n in numbers]
        )


def _packed_column(rows: Sequence[Any], column: Column) -> array[float]:
    try:
        return array("f", map(column.value, rows))  # type: ignore[arg-type]
    except TypeError:  # Some are unknown.
        values = map(column.value, rows)
        return array("f", [math.nan if value is None else value for value in values])


class RowCursor:
    """Remembers which rows were sent, and returns those that are new or were replaced."""

    def __init__(self) -> None:
        self._sent: Sequence[Event] = []
        self._count = 0

    def advance(self, view: RunView) -> tuple[int, Sequence[Event]] | None:
        """Return (index of the first changed row, all rows from there on), or None.

        A view appends to one list while it follows and makes a new one when a restart
        replaced rows, so only then the rows have to be compared.
        """
        rows = view.rows
        first = self._count if rows is self._sent else self._common(rows)
        unchanged = first == self._count == len(rows)
        self._sent, self._count = rows, len(rows)
        return None if unchanged else (first, rows[first:])

    def _common(self, rows: Sequence[Event]) -> int:
        rows_sent = self._sent[: self._count]
        for index, (old, new) in enumerate(zip(rows_sent, rows, strict=False)):
            if old is not new:
                return index
        return min(len(rows_sent), len(rows))


class PackedRows:
    """The packed rows of one view: each is packed once for all readers."""

    def __init__(self) -> None:
        self.columns: Sequence[Column] = ()
        self._row_bytes = 0
        self._cursor = RowCursor()
        self._rows = bytearray()
        self.generation = 0
        """Counts how often known rows were replaced or got other columns; a reader of another
        one starts again."""

    def __len__(self) -> int:
        return len(self._rows) // self._row_bytes if self._row_bytes else 0

    def sync(self, view: RunView) -> int | None:
        """Add what is new; return the index of the first changed row, None without changes."""
        self._take_columns(view)
        changes = self._cursor.advance(view)
        if changes is None:
            return None
        first, rows = changes
        if first < len(self):
            self.generation += 1
            del self._rows[first * self._row_bytes :]
        self._rows += pack(rows, self.columns)
        return first

    def _take_columns(self, view: RunView) -> None:
        """Pack all rows again when the run has named another column."""
        columns = columns_of(view)
        if columns == self.columns:
            return
        if self._rows:
            self.generation += 1
            self._rows.clear()
        self.columns, self._row_bytes = columns, row_bytes(columns)
        self._cursor = RowCursor()

    def rows(self, first: int = 0) -> bytes:
        """Return all rows from `first` on."""
        return bytes(memoryview(self._rows)[first * self._row_bytes :])
