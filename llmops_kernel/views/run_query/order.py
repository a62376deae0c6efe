"""Sort and group runs by any column; unknown values come last in both directions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from llmops_kernel.views.run_query.row import Catalogue, Column, Row, Value

_DIGITS = re.compile(r"(\d{1,15})")
Key = tuple[object, ...]


@dataclass(frozen=True)
class Order:
    column: Column
    descending: bool = False

    @property
    def text(self) -> str:
        return f"{'-' if self.descending else ''}{self.column.name}"


def orders(text: str, catalogue: Catalogue) -> tuple[Order, ...]:
    """Parse `-eval_loss,created`; a minus sorts from the largest. Raises QueryError."""
    result = []
    for part in text.split(","):
        name = part.strip()
        if name.strip("+-"):
            result.append(Order(catalogue.resolve(name.lstrip("+-").strip()), name[0] == "-"))
    return tuple(result)


def ordered(rows: Iterable[Row], by: Sequence[Order]) -> list[Row]:
    """Return the rows in that order; equal ones from the newest to the oldest."""
    result = sorted(rows, key=_newest, reverse=True)
    for order in reversed(by):
        key = sort_key(order.column.key)
        with_value = [row for row in result if row.get(order.column.key) is not None]
        unknown = [row for row in result if row.get(order.column.key) is None]
        with_value.sort(key=key, reverse=order.descending)
        result = with_value + unknown
    return result


def _newest(row: Row) -> tuple[float, str]:
    created = row.get("created")
    return (created if isinstance(created, int | float) else 0.0, row.run_id)


def sort_key(name: str) -> Callable[[Row], Key]:
    return lambda row: value_key(row.get(name))


def value_key(value: Value) -> Key:
    """Return a key that puts numbers before texts, and `run-9` before `run-10`."""
    if isinstance(value, bool):
        return (0, int(value))
    if isinstance(value, int | float):
        return (1, value)
    if isinstance(value, tuple):
        return (3, tuple(item.casefold() for item in value))
    return (2, natural(value or ""))


def natural(text: str) -> tuple[object, ...]:
    # Every other part is a number, so that like is compared with like.
    parts = _DIGITS.split(text.casefold())
    return tuple(int(part) if number % 2 else part for number, part in enumerate(parts))


@dataclass(frozen=True)
class Group:
    """Runs with the same value in the grouping columns."""

    values: tuple[Value, ...]
    rows: tuple[Row, ...]


def grouped(rows: Iterable[Row], columns: Sequence[Column]) -> list[Group]:
    """Return groups in order of their values, unknown ones last; rows keep their order."""
    members: dict[tuple[tuple[type, Value], ...], list[Row]] = {}
    for row in rows:
        values = [row.get(column.key) for column in columns]
        members.setdefault(tuple((type(value), value) for value in values), []).append(row)
    groups = [
        Group(tuple(v for _, v in key), tuple(rows_of_group))
        for key, rows_of_group in members.items()
    ]
    return sorted(groups, key=_group_key)


def _group_key(group: Group) -> Key:
    return tuple((value is None, value_key(value)) for value in group.values)
