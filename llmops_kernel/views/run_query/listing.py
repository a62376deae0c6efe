"""Selected runs as a table with columns of choice: text, HTML, plain values."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from llmops_kernel.views import format as fmt
from llmops_kernel.views.figures import RunTable
from llmops_kernel.views.run_query.differences import Naming, number_text
from llmops_kernel.views.run_query.order import value_key
from llmops_kernel.views.run_query.query import MAX_DIFFERING, usual_columns
from llmops_kernel.views.run_query.row import Catalogue, Column, Row, Value, type_of


@dataclass(frozen=True)
class Listing:
    """Rows in order, and the columns to show of them; without any the usual ones."""

    rows: tuple[Row, ...]
    catalogue: Catalogue
    naming: Naming
    """Names computed over all runs, so that a filter changes no name."""
    row_naming: Naming
    """Names computed over these rows: they say what differs between them."""
    chosen: tuple[Column, ...] = ()

    @classmethod
    def of(
        cls,
        rows: Sequence[Row],
        catalogue: Catalogue,
        chosen: tuple[Column, ...] = (),
        *,
        every: Sequence[Row] = (),
    ) -> Listing:
        """Return a listing; `every` are all runs of the store, by default the rows alone."""
        row_naming = Naming(rows)
        naming = Naming(every) if every else row_naming
        return cls(tuple(rows), catalogue, naming, row_naming, chosen)

    @property
    def distinctions(self) -> dict[str, str]:
        """Return what distinguishes each run from the others of its config, by id."""
        return self.naming.distinctions

    @property
    def names(self) -> dict[str, str]:
        """Return the name of each run on every screen, by id; runs of two configs may share one."""
        return {row.run_id: self.naming.name(row) for row in self.rows}

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """Return a name of each run that no other of them has, by id."""
        return self.naming.labels(self.rows)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Return the chosen columns; otherwise state, progress, figures, and what differs."""
        if self.chosen:
            return self.chosen
        return (*usual_columns(self.rows, self.catalogue), *self.differing[:MAX_DIFFERING])

    @cached_property
    def differing(self) -> tuple[Column, ...]:
        """Return the config columns whose values differ, what matters most first."""
        return tuple(self.catalogue.columns[key] for key in self.row_naming.differing)

    def table(self) -> RunTable:
        """Return the texts, behind each run's id the name that tells it from the others."""
        columns = [column for column in self.columns if column.key not in ("run", "differs")]
        numbers = [c.label for c in columns if type_of(c, self.rows) == "number"]
        head, lines = ["run"], [[row.run_id] for row in self.rows]
        if all(column.key != "name" for column in columns):
            head.append("name")
            lines = [[row.run_id, self.naming.name(row)] for row in self.rows]
        for line, row in zip(lines, self.rows, strict=True):
            line += [cell(row, column) for column in columns]
        head += [column.label for column in columns]
        return RunTable(names=tuple(head), rows=tuple(map(tuple, lines)), numbers=tuple(numbers))

    def values(self, columns: Sequence[Column] | None = None) -> dict[str, list[Value]]:
        """Return values by column name, the run's id first; in base units, None for unknown."""
        shown_columns = self.columns if columns is None else columns
        result: dict[str, list[Value]] = {"run": [row.run_id for row in self.rows]}
        for column in shown_columns:
            result[column.name] = [raw(row, column, self.distinctions) for row in self.rows]
        return result


# --- Cells of a table: their texts, and their values for files ---


NO_DISTINCTIONS: Mapping[str, str] = {}


def cell(row: Row, column: Column, distinctions: Mapping[str, str] = NO_DISTINCTIONS) -> str:
    """Return the text of one cell; `distinctions` are the texts of the column `differs` by run."""
    if column.key == "differs":
        return distinctions.get(row.run_id) or fmt.DASH
    value = row.get(column.key)
    if value is None:
        return (row.texts or {}).get(column.key, fmt.DASH)
    return value_cell(value, column)


def value_cell(value: Value, column: Column) -> str:
    if value is None:
        return fmt.DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value) or fmt.DASH
    if isinstance(value, str):
        return value.capitalize() if column.key == "state" else value
    if column.type == "time":
        return _moment(value)
    if column.unit is not None:
        return fmt.by_unit(value, column.unit)
    if column.key == "progress":
        return f"{100 * value:.0f} %"
    return number_text(value)


def _moment(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OverflowError, OSError, ValueError):
        return fmt.DASH


def raw(row: Row, column: Column, distinctions: Mapping[str, str] = NO_DISTINCTIONS) -> Value:
    """Return the value for a file or a DataFrame: base units, None for unknown."""
    return distinctions.get(row.run_id) or None if column.key == "differs" else row.get(column.key)


# --- Position of a run's value between the lowest and the highest of all: for colours and axes ---


MAX_VALUES = 60
"""Number of values of a text column; further values share the last place."""
_LOG_FROM, _LOG_FROM_CONFIG = 100.0, 9.0
"""Positive numbers that span more than this factor get a logarithmic scale. Those of a config are
chosen so, such as learning rates of 1e-4, 3e-4 and 1e-3."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A number's range, or the different texts of a column from the bottom up."""

    column: Column
    low: float | None = None
    high: float | None = None
    is_log: bool = False
    values: tuple[str, ...] = ()

    @property
    def is_constant(self) -> bool:
        """Return whether all known values are the same: an axis of it says nothing."""
        return len(self.values) == 1 or (self.low is not None and self.low == self.high)

    @property
    def ends(self) -> tuple[str, str]:
        """Return the lowest and the highest value as the table writes them."""
        if self.values:
            return self.values[0], self.values[-1]
        return value_cell(self.low, self.column), value_cell(self.high, self.column)

    def at(self, row: Row) -> float | None:
        """Return 0..1; None where the value is unknown."""
        return self.of(row.get(self.column.key))

    def of(self, value: Value) -> float | None:
        if value is None:
            return None
        if self.values:
            text = value_cell(value, self.column)
            last = len(self.values) - 1
            place = self.values.index(text) if text in self.values else last
            return place / last if last else 0.5
        if self.low is None or self.high is None or not isinstance(value, int | float):
            return None
        low, high, scaled = (self._scaled(x) for x in (self.low, self.high, float(value)))
        if high <= low:
            return 0.5
        return min(1.0, max(0.0, (scaled - low) / (high - low)))

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.is_log and value > 0 else value


def is_plain_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def scale_of(column: Column, rows: Sequence[Row]) -> Scale:
    """Return the scale of a column over these rows; numbers only if no row has a text."""
    values = [value for row in rows if (value := row.get(column.key)) is not None]
    if values and all(map(is_plain_number, values)):
        numbers = [float(value) for value in values if isinstance(value, int | float)]
        low, high = min(numbers), max(numbers)
        factor = _LOG_FROM_CONFIG if column.source == "config" else _LOG_FROM
        return Scale(column=column, low=low, high=high, is_log=low > 0 and high / low > factor)
    ordered = sorted({(value_key(value), value_cell(value, column)) for value in values})
    texts = tuple(dict.fromkeys(text for _, text in ordered))
    return Scale(column=column, values=texts[:MAX_VALUES])
