"""Position of a run's value between the lowest and the highest of all: for colours and axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llmops_kernel.views.run_query.listing import value_cell
from llmops_kernel.views.run_query.order import value_key
from llmops_kernel.views.run_query.row import Column, Row, Value

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
