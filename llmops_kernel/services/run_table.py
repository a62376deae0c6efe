"""All runs of a store as rows in memory, read from its index and kept up to date."""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import ValidationError

from llmops_kernel.errors import RunNotFoundError, StoreError
from llmops_kernel.metrics.events import TERMINAL
from llmops_kernel.store.index import IndexRow
from llmops_kernel.store.journal.summary import RunSummary
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.run_notes import NO_NOTES, RunNotes, read_notes
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.run_query.differences import Naming
from llmops_kernel.views.run_query.query import Query, Selection, select
from llmops_kernel.views.run_query.row import (
    Catalogue,
    Row,
    Value,
    note_values,
    record_values,
    row_of,
)
from llmops_kernel.views.summary import summary_of

FIRST_S, CHECK_S = 0.05, 0.005
"""How long the first look and each later one check whether journals have grown; the rest is
checked by later looks."""
FEW = 20
"""So many new runs are read one by one; more come from the index at once."""
NO_NEWS: Mapping[str, RunSummary] = {}
_FOLLOWED = "followed"
"""In place of a fingerprint: the row is as its follower last said."""


@dataclass
class _RunEntry:
    row: Row
    fingerprint: str
    notes_ns: int


class RunTable:
    """Rows of all runs by id, for any number of threads.

    The first look takes what the index has kept, and each look checks some runs for what has
    changed since: those that have not ended first. A server gives the summaries of the runs that
    it follows anyway. Nothing here is needed again after a restart.
    """

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._runs = store.root / "runs"
        self._lock = threading.Lock()
        self._known: dict[str, _RunEntry] = {}
        self._records: dict[str, RecordValues] = {}
        self._ended: set[str] = set()
        self._hidden: set[str] = set()
        self._to_check: deque[str] = deque()
        self.rows: tuple[Row, ...] = ()
        """Newest first, as of the last look."""
        self.shown: tuple[Row, ...] = ()
        """Those that are not hidden."""
        self.catalogue = Catalogue()
        self.version = 0
        """Counts looks that changed a row."""
        self.names_version = 0
        """Counts changes of what runs are called: their number, configs and titles."""
        self.is_reading = False
        """Whether runs are missing in `rows` because their journals have not been read yet.

        Set after `rows`: who reads it before them, and finds it False, has them all.
        """

    def refresh(
        self, *, check_s: float | None = None, followed: Collection[str] = frozenset()
    ) -> None:
        """Bring the rows up to date; without `check_s` every run is checked. Raises StoreError.

        Of the runs in `followed` somebody else brings the news.
        """
        with self._lock:
            self._refresh(NO_NEWS, followed, check_s)

    def refresh_unless_busy(
        self, news: Callable[[], Mapping[str, RunSummary]], followed: Collection[str]
    ) -> None:
        """Look for a moment; with rows already there, do not wait for another thread.

        `news` returns new summaries of the runs that somebody follows: those are not checked here.
        """
        if self._lock.acquire(blocking=self.version == 0):
            try:
                self._refresh(news(), followed, CHECK_S if self.version else FIRST_S)
            finally:
                self._lock.release()

    def renote(self, run_ids: Iterable[str]) -> None:
        """Read the notes of these runs again, at once."""
        with self._lock:
            entries = [self._known[run_id] for run_id in run_ids if run_id in self._known]
            if any([self._renote(entry) for entry in entries]):
                self._show(self._store.ids())

    def select(self, query: Query) -> Selection:
        """Answer from the rows of the last look. Raises QueryError."""
        return select(self.rows if query.hidden else self.shown, self.catalogue, query)

    def _refresh(
        self, news: Mapping[str, RunSummary], followed: Collection[str], check_s: float | None
    ) -> None:
        ids = self._store.ids()
        removed = self._records.keys() - set(ids)
        changed = bool(removed) or self.version == 0
        self.names_version += int(bool(removed))
        for run_id in removed:
            self._known.pop(run_id, None)
            self._mark(run_id, has_ended=False, hidden=False)
            del self._records[run_id]
        changed |= self._add([run_id for run_id in ids if run_id not in self._records])
        changed |= any([self._take(summary) for summary in news.values()])
        changed |= self._check(ids, followed, check_s)
        if changed:
            self._show(ids)
        self.is_reading = len(self._known) < len(self._records)

    def _show(self, ids: Sequence[str]) -> None:
        self.rows = tuple(self._known[each].row for each in ids if each in self._known)
        hidden = self._hidden
        visible = (row for row in self.rows if row.run_id not in hidden)
        self.shown = tuple(visible) if hidden else self.rows
        self.version += 1

    def _add(self, new: Sequence[str]) -> bool:
        """Add runs from what the index has kept of them; others are read when they are checked."""
        self._records.update(read_records(self._store, new))
        if len(new) < FEW:
            return False
        new_ids = set(new) & self._records.keys()
        for run_id, fingerprint, text in self._store.index.summaries():
            if run_id in new_ids and fingerprint and (summary := parsed_summary(text)):
                self._put(summary, fingerprint)
        return True

    def _take(self, summary: RunSummary) -> bool:
        """Take a summary from somebody who follows the run."""
        if summary.run_id not in self._records:
            return False  # New since the look at the folders, or broken.
        self._put(summary, _FOLLOWED)
        return True

    def _check(self, ids: list[str], followed: Collection[str], check_s: float | None) -> bool:
        """Check runs that have not ended, then the others in turn, as long as there is time."""
        until_s = float("inf") if check_s is None else time.monotonic() + check_s
        if not self._to_check or check_s is None:
            self._to_check = deque(ids)
        # Live runs that somebody follows would take the time in which others are read first.
        followed_ids = {run_id for run_id in followed if run_id in self._known}
        ended = self._ended
        first = [run_id for run_id in ids if run_id not in ended and run_id not in followed_ids]
        changed = False
        for run_id in itertools.chain(first, self._turns()):
            if run_id in self._records and run_id not in followed_ids:
                changed |= self._check_one(run_id)
            if time.monotonic() > until_s:
                break
        return changed

    def _turns(self) -> Iterator[str]:
        while self._to_check:
            run_id = self._to_check.popleft()
            if run_id in self._ended:
                yield run_id

    def _check_one(self, run_id: str) -> bool:
        entry, fingerprint = self._known.get(run_id), self._store.fingerprint(run_id)
        if entry is not None and entry.fingerprint == fingerprint:
            return self._renote(entry)
        summary = summary_of(self._store, run_id)
        if summary is None:
            return False
        self._put(summary, fingerprint)
        self._store.cache_summary(summary, fingerprint=fingerprint)
        return True

    def _renote(self, entry: _RunEntry) -> bool:
        """Read the notes again if they have been written."""
        if entry.notes_ns == self._notes_ns(entry.row.run_id):
            return False
        entry.notes_ns = self._notes_ns(entry.row.run_id)
        entry.row = entry.row.changed(**note_values(self._notes(entry.row.run_id)))
        self.names_version += 1
        return True

    def _put(self, summary: RunSummary, fingerprint: str) -> None:
        run_id, values = summary.run_id, self._records[summary.run_id]
        notes_ns = self._notes_ns(run_id)
        notes = self._notes(run_id) if notes_ns else NO_NOTES
        row = row_of(summary, notes, config=values.config, facts=values.facts)
        self.catalogue.add(row)
        before = self._known.get(run_id)
        if before is None or before.row.get("title") != row.get("title"):
            self.names_version += 1
        self._known[run_id] = _RunEntry(row, fingerprint, notes_ns)
        self._mark(run_id, has_ended=summary.state in TERMINAL, hidden=summary.hidden)

    def _mark(self, run_id: str, *, has_ended: bool, hidden: bool) -> None:
        for marked, is_so in ((self._ended, has_ended), (self._hidden, hidden)):
            (marked.add if is_so else marked.discard)(run_id)

    def _notes_ns(self, run_id: str) -> int:
        try:
            return os.stat(f"{self._runs}/{run_id}/notes.json").st_mtime_ns
        except OSError:
            return 0

    def _notes(self, run_id: str) -> RunNotes:
        return read_notes(RunFolder(self._runs / run_id))


def parsed_summary(summary: str) -> RunSummary | None:
    """Return what the index has kept of a run; None for nothing, or another version's."""
    try:
        return RunSummary.model_validate_json(summary)
    except ValidationError:
        return None


# --- Values of run records, cached in the store's index: records never change ---


_VERSION = 3
"""Counts up when `record_values` returns something else: earlier texts are read again."""


class RecordValues(NamedTuple):
    config: dict[str, Value]
    facts: dict[str, Value]


def read_records(store: RunStore, run_ids: Iterable[str]) -> dict[str, RecordValues]:
    """Return what the records of these runs say; a broken one is left out."""
    ids = list(run_ids)
    cached = store.index.texts() if ids else {}
    records, new = {}, {}
    for run_id in ids:
        values = _parsed(cached.get(run_id))
        if values is None:
            try:
                values = RecordValues(*record_values(store.record(run_id)))
            except (StoreError, RunNotFoundError):
                continue
            new[run_id] = _text(values)
        records[run_id] = values
    store.index.put_texts(new)
    return records


def _text(values: RecordValues) -> str:
    parts = (values.config, values.facts)
    lists = [each for part in parts for each in ("\n".join(part), list(part.values()))]
    return json.dumps([_VERSION, *lists], separators=(",", ":"))


def _parsed(text: str | None) -> RecordValues | None:
    """Return what `_text` wrote; None for anything else, such as another version's."""
    if text is None:
        return None
    try:
        version, config_names, config, fact_names, facts = json.loads(text)
        if version != _VERSION:
            return None
        return RecordValues(_named(config_names, config), _named(fact_names, facts))
    except (ValueError, TypeError, AttributeError):
        return None


def _named(names: str, values: list[Any]) -> dict[str, Value]:
    return dict(zip(_split(names), [_SHARE[type(value)](value) for value in values], strict=True))


@lru_cache(maxsize=2_000)
def _split(names: str) -> tuple[str, ...]:
    """Return the names, each in memory once: they repeat from run to run."""
    return tuple(map(sys.intern, names.split("\n"))) if names else ()


def _unchanged(value: Any) -> Any:
    return value


_SHARE: defaultdict[type, Callable[[Any], Value]] = defaultdict(
    lambda: _unchanged, {str: sys.intern, list: tuple}
)
"""Shares equal values: texts repeat from run to run as well."""


# --- Names of runs made from what differs between all runs of their configs, for every screen ---


def families(store: RunStore, names: Collection[str]) -> list[Row]:
    """Return all runs of the configs of these names, with what their records say."""
    members = [each for each in store.listed() if each.name in names]
    records = read_records(store, [each.run_id for each in members])
    return [_row(each, records.get(each.run_id)) for each in members]


def labels_of(store: RunStore, run_ids: Iterable[str]) -> dict[str, str]:
    """Return a name of each of these runs that no other of them has, by id.

    The name that each has on every screen, behind its config's where they are of several.
    Raises RunNotFoundError, StoreError.
    """
    titles = {run_id: store.notes(run_id).title for run_id in run_ids}
    every = families(store, {store.record(run_id).name for run_id in titles})
    titled = [
        row.changed(title=titles[row.run_id] or None) for row in every if row.run_id in titles
    ]
    return dict(Naming(every).labels(titled))


class FamilyNames:
    """Names of all runs of a store, titles aside; recomputed when a run changes."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._records: dict[str, RecordValues] = {}
        self._families: dict[str, tuple[frozenset[str], dict[str, str]]] = {}

    def names(self) -> dict[str, str]:
        """Return names such as `lr 2e-3 · r 16` by id; only families that changed cost time.

        Empty for a run that is called as its config is.
        """
        runs = self._store.listed()
        run_ids = {run.run_id for run in runs}
        self._records = {key: value for key, value in self._records.items() if key in run_ids}
        new = [run.run_id for run in runs if run.run_id not in self._records]
        self._records |= read_records(self._store, new)
        members: dict[str, list[IndexRow]] = {}
        for run in runs:
            members.setdefault(run.name, []).append(run)
        self._families = {name: self._family(name, each) for name, each in members.items()}
        return {
            run_id: text for _, texts in self._families.values() for run_id, text in texts.items()
        }

    def _family(self, name: str, runs: list[IndexRow]) -> tuple[frozenset[str], dict[str, str]]:
        members = frozenset(run.run_id for run in runs)
        cached = self._families.get(name)
        if cached is not None and cached[0] == members:
            return cached
        rows = [_row(run, self._records.get(run.run_id)) for run in runs]
        namer = Naming(rows)
        names = {row.run_id: namer.name(row) for row in rows}
        return members, {key: "" if text == name else text for key, text in names.items()}


def _row(run: IndexRow, record: RecordValues | None) -> Row:
    facts: dict[str, Value] = {
        "run": run.run_id,
        "name": run.name,
        "cluster": run.cluster,
        "created": run.created_s,
    }
    values = {} if record is None else {**record.facts, **record.config}
    return Row(run.run_id, {**facts, **values})
