"""The columns that a set of runs has, and the one that a name means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from llmops_kernel.errors import QueryError
from llmops_kernel.store.journal.summary import Better, Unit
from llmops_kernel.views.run_query.row import CONFIG, FIGURE, Row

Source = Literal["run", "figure", "config"]
Type = Literal["text", "number", "time", "yes/no", "list"]

FACTS: dict[str, tuple[str, Type]] = {
    "run": ("run id", "text"),
    "differs": ("differs in", "text"),
    "name": ("name", "text"),
    "title": ("title", "text"),
    "kind": ("kind", "text"),
    "state": ("state", "text"),
    "progress": ("progress", "number"),
    "done": ("done", "number"),
    "cluster": ("cluster", "text"),
    "created": ("created", "time"),
    "attempt": ("attempt", "number"),
    "starred": ("starred", "yes/no"),
    "tags": ("tags", "list"),
    "colour": ("colour", "text"),
    "note": ("note", "text"),
    "parent": ("re-submitted from", "text"),
    "reason": ("reason", "text"),
    "user": ("user", "text"),
    "host": ("host", "text"),
    "config_file": ("config file", "text"),
    "code": ("code", "text"),
    "revision": ("git revision", "text"),
    "hidden": ("hidden", "yes/no"),
}
"""What every run has, whatever its kind and config: name -> (label, type)."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column that can be shown, filtered and sorted by."""

    key: str
    """The name in a row: a fact, `figure.<key>` or `config.<path>`."""
    name: str
    """What a user writes."""
    label: str
    source: Source
    type: Type = "text"
    unit: Unit | None = None
    better: Better = None
    listed: bool = False


_FACT_COLUMNS = {
    name: Column(key=name, name=name, label=label, source="run", type=kind)
    for name, (label, kind) in FACTS.items()
}


class Catalogue:
    """All columns of the rows that were added. Removing a row does not remove its columns."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.columns: dict[str, Column] = dict(_FACT_COLUMNS)
        """By key."""
        self._names: dict[str, str] = {name: name for name in FACTS}
        self._shapes: dict[int, dict[str, int]] = {}
        """Kept, so that the id of a table of positions is never that of a later one."""
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        if id(row.positions) in self._shapes:
            return
        for key in row.positions:
            if key not in self.columns:
                self._add(key, row)
        self._shapes[id(row.positions)] = row.positions

    def _add(self, key: str, row: Row) -> None:
        if key.startswith(FIGURE):
            column = self._figure(key, row)
        else:
            path = key.removeprefix(CONFIG)
            name = path if path not in self._names else key
            column = Column(key=key, name=name, label=name, source="config")
        self.columns[key] = column
        self._names[column.name] = key

    def _figure(self, key: str, row: Row) -> Column:
        short = key.removeprefix(FIGURE)
        known = next((figure for figure in row.figures if figure.key == short), None)
        taken = self._names.get(short)
        if taken is not None and taken.startswith(CONFIG):
            # A config of another run came first: figures have the short name.
            self.columns[taken] = _renamed(self.columns[taken], taken)
            self._names[taken] = taken
            taken = None
        return Column(
            key=key,
            name=short if taken is None else key,
            label=known.label if known else short,
            source="figure",
            type="number",
            unit=known.unit if known else "number",
            better=known.better if known else None,
            listed=bool(known and known.listed),
        )

    def resolve(self, name: str) -> Column:
        """Return the column that a user means: its name, its key, or a unique end of its path.

        Raises QueryError with near matches.
        """
        key = self._names.get(name) or (name if name in self.columns else None)
        if key is None:
            key = self._names.get(name.removeprefix(CONFIG)) if name.startswith(CONFIG) else None
        if key is not None:
            return self.columns[key]
        ends = [column for column in self.columns.values() if column.name.endswith(f".{name}")]
        if len(ends) == 1:
            return ends[0]
        raise self._unknown(name, [column.name for column in ends])

    def _unknown(self, name: str, ends: list[str]) -> QueryError:
        shown = name if len(name) <= 80 else f"{name[:80]}…"
        if ends:
            message = f"{shown!r} is the end of {len(ends)} columns."
            return QueryError(message, remedy=f"write one of: {', '.join(sorted(ends)[:8])}")
        near = difflib.get_close_matches(name[:80], list(self._names), n=4, cutoff=0.6)
        near += [full for full in self._names if full.endswith(name) and full not in near][:3]
        remedy = f"did you mean {' or '.join(near[:4])}?" if near else _SEE_ALL
        return QueryError(f"No run has a column {shown!r}.", remedy=remedy)


_SEE_ALL = "`llmops runs --columns help` lists all columns; text needs quotes"


def type_of(column: Column, rows: Iterable[Row]) -> Type:
    """Return the type of the first known value; a config's values may have any."""
    if column.source != "config":
        return column.type
    value = next((found for row in rows if (found := row.get(column.key)) is not None), None)
    if isinstance(value, bool):
        return "yes/no"
    if isinstance(value, int | float):
        return "number"
    return "list" if isinstance(value, tuple) else "text"


def _renamed(column: Column, name: str) -> Column:
    return Column(key=column.key, name=name, label=name, source="config", type=column.type)
