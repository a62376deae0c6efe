"""A question about many runs: which, in what order, with which columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmops_kernel.views.run_query import order as ordering
from llmops_kernel.views.run_query.condition import condition
from llmops_kernel.views.run_query.row import Catalogue, Column, Row

_STANDARD = ("state", "progress")
MAX_DIFFERING = 8
"""Columns of differing values that a table shows unless others are asked for."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query as a user writes it; empty: all runs, newest first, with the usual columns."""

    where: str = ""
    sort: str = ""
    columns: tuple[str, ...] = ()
    group: str = ""
    hidden: bool = False
    """Whether runs of benchmarks and self-tests are among them."""


@dataclass(frozen=True)
class Selection:
    """The runs that match, in order, and the columns that were named."""

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    sort: tuple[ordering.Order, ...]
    group: tuple[Column, ...]


def select(rows: Iterable[Row], catalogue: Catalogue, query: Query) -> Selection:
    """Filter and sort; the caller leaves hidden runs out. Raises QueryError."""
    columns = tuple(catalogue.resolve(name.strip()) for name in query.columns if name.strip())
    sort = ordering.orders(query.sort, catalogue)
    group = tuple(each.column for each in ordering.orders(query.group, catalogue))
    matches = condition(query.where, catalogue)
    matching = [row for row in rows if matches(row)]
    return Selection(tuple(ordering.ordered(matching, sort)), columns, sort, group)


def usual_columns(rows: Sequence[Row], catalogue: Catalogue) -> list[Column]:
    """Return state, progress and the listed figures that are known of at least one run."""
    listed = [column for column in catalogue.columns.values() if column.listed]
    with_values = [c for c in listed if any(row.get(c.key) is not None for row in rows)]
    return [*(catalogue.columns[name] for name in _STANDARD), *with_values]
