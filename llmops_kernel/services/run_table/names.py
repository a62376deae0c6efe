"""Names of runs made from what differs between them, for lists, legends and heads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from llmops_kernel.services.run_table.records import RecordValues, read_records
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.run_query.differences import Naming, family_words
from llmops_kernel.views.run_query.row import Row


class Named(NamedTuple):
    """What a run's name is made from, besides its record."""

    run_id: str
    name: str
    kind: str
    cluster: str
    created_s: float
    title: str = ""


def labels_among(store: RunStore, runs: Sequence[Named]) -> dict[str, str]:
    """Return a name of each of these few runs that no other of them has, by id."""
    records = read_records(store, [run.run_id for run in runs])
    return dict(Naming([_row(run, records.get(run.run_id)) for run in runs]).labels)


def labels_of(store: RunStore, run_ids: Iterable[str]) -> dict[str, str]:
    """Return the same for runs by their ids. Raises RunNotFoundError, StoreError."""
    runs = []
    for run_id in run_ids:
        record, title = store.record(run_id), store.notes(run_id).title
        runs.append(
            Named(run_id, record.name, record.kind, record.cluster, record.created_s, title)
        )
    return labels_among(store, runs)


class FamilyNames:
    """What each listed run differs in from the others of its config, worked out once a change."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._records: dict[str, RecordValues] = {}
        self._families: dict[str, tuple[frozenset[str], dict[str, str]]] = {}

    def words(self, runs: Sequence[Named]) -> dict[str, str]:
        """Return words such as `lr 2e-3 · r 16` by id; only families that changed cost time."""
        known = {run.run_id for run in runs}
        self._records = {key: value for key, value in self._records.items() if key in known}
        new = [run.run_id for run in runs if run.run_id not in self._records]
        self._records |= read_records(self._store, new)
        families: dict[str, list[Named]] = {}
        for run in runs:
            families.setdefault(run.name, []).append(run)
        self._families = {name: self._family(name, each) for name, each in families.items()}
        return {
            run_id: text for _, found in self._families.values() for run_id, text in found.items()
        }

    def _family(self, name: str, runs: Sequence[Named]) -> tuple[frozenset[str], dict[str, str]]:
        members = frozenset(run.run_id for run in runs)
        kept = self._families.get(name)
        if kept is not None and kept[0] == members:
            return kept
        rows = [_row(run, self._records.get(run.run_id)) for run in runs]
        return members, family_words(rows)


def _row(run: Named, record: RecordValues | None) -> Row:
    facts = {
        "run": run.run_id,
        "name": run.name,
        "title": run.title or None,
        "kind": run.kind,
        "cluster": run.cluster,
        "created": run.created_s,
    }
    more = {} if record is None else {**record.facts, **record.config}
    return Row(run.run_id, {**facts, **more})
