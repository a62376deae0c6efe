"""Runs as named values: facts, figures and config, flat and small, for thousands of them."""

from __future__ import annotations

import difflib
import math
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from llmops_kernel.errors import QueryError
from llmops_kernel.store.journal.summary import Better, FigureValue, RunSummary, Unit
from llmops_kernel.store.record import RunRecord, beginning
from llmops_kernel.store.run_notes import RunNotes
from llmops_kernel.views.format import DASH

Value = float | int | str | bool | tuple[str, ...] | None
"""None is unknown."""
CONFIG = "config."
FIGURE = "figure."
MAX_FIELDS = 500
"""Fields per run: a config that generates keys must not fill the memory of all lists."""
MAX_TEXT = 300
_MAX_DEPTH = 12

_SHAPES: dict[tuple[str, ...], dict[str, int]] = {}
_MAX_SHAPES = 2_000


class FigureMeta(NamedTuple):
    """Properties that all values of one figure have in common."""

    key: str
    label: str
    unit: Unit
    better: Better
    listed: bool


class Row:
    """A run's values by name; rows with the same names share one table of positions."""

    __slots__ = ("figures", "positions", "run_id", "texts", "values")

    def __init__(
        self,
        run_id: str,
        values: Mapping[str, Value],
        *,
        figures: tuple[FigureMeta, ...] = (),
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self.run_id = run_id
        self.positions = _positions(tuple(values))
        self.values = tuple(values.values())
        self.figures = figures
        self.texts = texts
        """What a value is shown as where it is unknown for a reason, such as a loss of NaN."""

    def changed(self, **values: Value) -> Row:
        """Return the row with other values for names that it has."""
        every = dict(self.items()) | values
        return Row(self.run_id, every, figures=self.figures, texts=self.texts)

    def get(self, name: str) -> Value:
        """Return the value of that name; None when it is unknown or the run has no such."""
        position = self.positions.get(name)
        return None if position is None else self.values[position]

    def items(self) -> Iterator[tuple[str, Value]]:
        return zip(self.positions, self.values, strict=True)


def _positions(names: tuple[str, ...]) -> dict[str, int]:
    positions = _SHAPES.get(names)
    if positions is None:
        positions = {name: number for number, name in enumerate(names)}
        if len(_SHAPES) < _MAX_SHAPES:
            positions = _SHAPES.setdefault(names, positions)
    return positions


def row_of(
    summary: RunSummary, notes: RunNotes, *, config: Mapping[str, Value], facts: Mapping[str, Value]
) -> Row:
    """Return a run's row; `config` and `facts` are what `record_values` made of its record."""
    progress = summary.progress
    values: dict[str, Value] = {
        "run": summary.run_id,
        "name": summary.name,
        "kind": summary.kind,
        "state": summary.state,
        "cluster": summary.cluster,
        "created": summary.created_s,
        "attempt": summary.attempt,
        "progress": None if progress is None else progress.fraction,
        "done": None if progress is None else progress.done,
        **note_values(notes),
        "parent": summary.parent,
        "reason": (summary.message or summary.reason)[:MAX_TEXT] or None,
        "hidden": summary.hidden,
    }
    values.update(facts)
    texts = {}
    for figure in summary.figures:
        key = sys.intern(FIGURE + figure.key)
        values[key] = figure.value
        if figure.value is None and figure.text != DASH:
            texts[key] = figure.text
    values.update(config)
    return Row(summary.run_id, values, figures=_metas(summary.figures), texts=texts or None)


def note_values(notes: RunNotes) -> dict[str, Value]:
    return {
        "title": notes.title or None,
        "starred": notes.starred,
        "tags": notes.tags,
        "group": notes.group or None,
        "project": notes.project or None,
        "phase": notes.phase or None,
        "colour": notes.colour or None,
        "note": notes.note[:MAX_TEXT] or None,
    }


@lru_cache(maxsize=_MAX_SHAPES)
def _shared(metas: tuple[FigureMeta, ...]) -> tuple[FigureMeta, ...]:
    return metas


def _metas(figures: Iterable[FigureValue]) -> tuple[FigureMeta, ...]:
    return _shared(tuple(FigureMeta(f.key, f.label, f.unit, f.better, f.listed) for f in figures))


def record_values(record: RunRecord) -> tuple[dict[str, Value], dict[str, Value]]:
    """Return a record's config by `config.<path>`, and its other facts. They never change."""
    facts: dict[str, Value] = {
        "user": plain(record.user or None),
        "agent": plain(record.agent.name if record.agent else None),
        "host": plain(record.host or None),
        "config_file": plain(record.config_path or None),
        "code": plain(record.code_hash[:12] or None),
        "revision": plain(record.git.revision[:12] if record.git else None),
    }
    return config_values(record.config), facts


def config_values(config: Mapping[str, Any]) -> dict[str, Value]:
    """Return a config's values by dotted path, each with the prefix `config.`.

    A training that begins with a run has that run's name instead of the folder of its result.
    """
    values: dict[str, Value] = {}
    model = config.get("model")
    # The adapter of a scoring's model is a folder.
    is_training = isinstance(model, Mapping) and model.get("adapter") in (None, "continue", "merge")
    if isinstance(model, Mapping) and is_training and model.get("run"):
        named = {"id": beginning(model), "run": None, "step": None}
        config = {**config, "model": {**model, **named}}
    for path, value in _flat(config, "", 0):
        if len(values) == MAX_FIELDS:
            break
        values[sys.intern(CONFIG + path)] = value
    return values


def _flat(value: Any, path: str, depth: int) -> Iterator[tuple[str, Value]]:
    if isinstance(value, Mapping) and depth < _MAX_DEPTH:
        for key, inner in value.items():
            name = " ".join(_short(str(key)).split("\n"))
            yield from _flat(inner, f"{path}.{name}" if path else name, depth + 1)
    elif _is_list(value) and any(isinstance(item, Mapping) for item in value):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{number}]", depth + 1)
    elif path:
        yield path, plain(value)


def plain(value: Any) -> Value:
    """Return a value of a config as one that can be compared and shown; NaN is unknown."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else float(value) if abs(value) < 1e300 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if _is_list(value):
        return tuple(_short(str(item)) for item in value[:50])
    return _short(str(value))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _short(text: str) -> str:
    """Cut a long text; two long ones that differ stay different."""
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}… #{zlib.crc32(text.encode(errors='replace')):08x}"
    return sys.intern(text)


# --- Columns of a set of runs ---


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
    "group": ("group", "text"),
    "project": ("project", "text"),
    "phase": ("phase", "text"),
    "colour": ("colour", "text"),
    "note": ("note", "text"),
    "parent": ("re-submitted from", "text"),
    "reason": ("reason", "text"),
    "user": ("user", "text"),
    "agent": ("agent", "text"),
    "host": ("host", "text"),
    "config_file": ("config file", "text"),
    "code": ("code", "text"),
    "revision": ("git revision", "text"),
    "hidden": ("hidden", "yes/no"),
}
"""Facts that every run has, whatever its kind and config: name -> (label, type)."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column that can be shown, filtered and sorted by."""

    key: str
    """The name in a row: a fact, `figure.<key>` or `config.<path>`."""
    name: str
    """Name as a user writes it."""
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
        figure_known = next((figure for figure in row.figures if figure.key == short), None)
        taken_key = self._names.get(short)
        if taken_key is not None and taken_key.startswith(CONFIG):
            # A config of another run came first: figures have the short name.
            self.columns[taken_key] = _renamed(self.columns[taken_key], taken_key)
            self._names[taken_key] = taken_key
            taken_key = None
        return Column(
            key=key,
            name=short if taken_key is None else key,
            label=figure_known.label if figure_known else short,
            source="figure",
            type="number",
            unit=figure_known.unit if figure_known else "number",
            better=figure_known.better if figure_known else None,
            listed=bool(figure_known and figure_known.listed),
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
        shown_name = name if len(name) <= 80 else f"{name[:80]}…"
        if ends:
            message = f"{shown_name!r} is the end of {len(ends)} columns."
            return QueryError(message, remedy=f"write one of: {', '.join(sorted(ends)[:8])}")
        similar = difflib.get_close_matches(name[:80], list(self._names), n=4, cutoff=0.6)
        similar += [full for full in self._names if full.endswith(name) and full not in similar][:3]
        remedy = f"did you mean {' or '.join(similar[:4])}?" if similar else _SEE_ALL
        return QueryError(f"No run has a column {shown_name!r}.", remedy=remedy)


_SEE_ALL = "`llmops runs --columns help` lists all columns; text needs quotes"


def type_of(column: Column, rows: Iterable[Row]) -> Type:
    """Return the type of the first known value; a config's values may have any."""
    if column.source != "config":
        return column.type
    value = next((example for row in rows if (example := row.get(column.key)) is not None), None)
    if isinstance(value, bool):
        return "yes/no"
    if isinstance(value, int | float):
        return "number"
    return "list" if isinstance(value, tuple) else "text"


def _renamed(column: Column, name: str) -> Column:
    return Column(key=column.key, name=name, label=name, source="config", type=column.type)
