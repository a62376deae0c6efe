"""What a table shows of a value: the text of each cell, and the same for files."""

from __future__ import annotations

import time
from collections.abc import Mapping

from llmops_kernel.views import format as fmt
from llmops_kernel.views.run_query.catalogue import Column
from llmops_kernel.views.run_query.differences import number_text
from llmops_kernel.views.run_query.row import Row, Value

NO_WORDS: Mapping[str, str] = {}


def cell(row: Row, column: Column, words: Mapping[str, str] = NO_WORDS) -> str:
    """Return the text of one cell; `words` are the texts of the column `differs` by run."""
    if column.key == "differs":
        return words.get(row.run_id) or fmt.DASH
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


def raw(row: Row, column: Column, words: Mapping[str, str] = NO_WORDS) -> Value:
    """Return the value for a file or a DataFrame: base units, None for unknown."""
    return words.get(row.run_id) or None if column.key == "differs" else row.get(column.key)
