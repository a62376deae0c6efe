"""Names of runs made from what differs between all runs of their configs, for every screen."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from llmops_kernel.services.run_table.index import RecordValues, read_records
from llmops_kernel.store.index import IndexRow
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.run_query.differences import Naming
from llmops_kernel.views.run_query.row import Row, Value


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
