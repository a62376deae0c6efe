"""Objects, their versions, and a bounded log of what happened to them."""

from __future__ import annotations

import asyncio
import bisect
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.k8s.standin.objects.errors import ApiError, expired
from tests.k8s.standin.objects.fieldsets import Owner
from tests.k8s.standin.objects.kinds import Kind

FIRST_VERSION = 1000
"""Above 1: a watch from version 1 must find it too old, as on a server that has compacted."""
LOG_LENGTH = 4000
Key = tuple[str, str]
Body = dict[str, Any]


def dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One version of an object: never changed, so versions share their unchanged parts."""

    kind: Kind
    body: Body
    """Without apiVersion and kind: those depend on the version that is asked for."""
    owners: tuple[Owner, ...] = ()

    @property
    def key(self) -> Key:
        meta = self.body["metadata"]
        return meta.get("namespace", ""), meta["name"]

    @property
    def uid(self) -> str:
        return self.body["metadata"]["uid"]

    @property
    def version(self) -> int:
        return int(self.body["metadata"].get("resourceVersion", 0))

    @cached_property
    def raw(self) -> bytes:
        return dump(self.body)

    def full(self, version: str = "") -> Body:
        head = {"apiVersion": self.kind.api_version(version), "kind": self.kind.kind}
        return head | self.body

    def raw_full(self, version: str = "") -> bytes:
        head = f'{{"apiVersion":"{self.kind.api_version(version)}","kind":"{self.kind.kind}",'
        return head.encode() + self.raw[1:]

    def raw_item(self, version: str = "") -> bytes:
        """As an item of a list: those of built-in kinds do not say what they are."""
        return self.raw_full(version) if self.kind.custom else self.raw


@dataclass(frozen=True, eq=False)
class Change:
    """One line of the log; `after` is the last state, also of what was deleted."""

    version: int
    type: str
    after: Snapshot
    before: Snapshot | None


@dataclass
class Table:
    """All objects of one kind and their latest changes."""

    objects: dict[Key, Snapshot] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    length: int = LOG_LENGTH
    """At least so many changes are kept, at most twice as many."""
    floor: int = FIRST_VERSION
    """Changes after this version are all in the log."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def since(self, version: int) -> list[Change]:
        if version < self.floor:
            raise expired(f"too old resource version: {version} ({self.floor})")
        start = bisect.bisect_right(self.log, version, key=lambda change: change.version)
        return self.log[start:]

    def append(self, change: Change) -> None:
        self.log.append(change)
        if len(self.log) > 2 * self.length:
            self.floor = self.log[self.length - 1].version
            del self.log[: self.length]
        self.wake()

    def wake(self) -> None:
        event, self.changed = self.changed, asyncio.Event()
        event.set()


class Store:
    """The whole state of the server; used from its event loop only."""

    def __init__(self) -> None:
        self.version = FIRST_VERSION
        self.tables: dict[Kind, Table] = {}
        self.uids: dict[str, Snapshot] = {}
        self.dependents: dict[str, dict[tuple[Kind, Key], None]] = {}
        self.listeners: list[Callable[[Change], None]] = []

    def table(self, kind: Kind) -> Table:
        table = self.tables.get(kind)
        if table is None:
            table = self.tables[kind] = Table(length=LOG_LENGTH, floor=self.version)
        return table

    def get(self, kind: Kind, namespace: str, name: str) -> Snapshot | None:
        return self.table(kind).objects.get((namespace, name))

    def list(self, kind: Kind, namespace: str = "") -> list[Snapshot]:
        """Sorted by key, as etcd has them."""
        objects = self.table(kind).objects
        keys = sorted(objects) if not namespace else sorted(k for k in objects if k[0] == namespace)
        return [objects[key] for key in keys]

    def next_version(self) -> int:
        self.version += 1
        return self.version

    def put(self, snapshot: Snapshot) -> None:
        table = self.table(snapshot.kind)
        before = table.objects.get(snapshot.key)
        table.objects[snapshot.key] = snapshot
        self.uids[snapshot.uid] = snapshot
        self._index(before, snapshot)
        kind = "MODIFIED" if before else "ADDED"
        self._report(table, Change(snapshot.version, kind, snapshot, before))

    def keep(self, snapshot: Snapshot) -> None:
        """Has it without telling anybody: it was there before, under another definition."""
        self.table(snapshot.kind).objects[snapshot.key] = snapshot
        self.uids[snapshot.uid] = snapshot
        self._index(None, snapshot)

    def remove(self, snapshot: Snapshot) -> Snapshot:
        """The last state, at the version of the deletion."""
        meta = {**snapshot.body["metadata"], "resourceVersion": str(self.next_version())}
        last = Snapshot(snapshot.kind, {**snapshot.body, "metadata": meta}, snapshot.owners)
        table = self.table(snapshot.kind)
        before = table.objects.pop(snapshot.key)
        self.uids.pop(snapshot.uid, None)
        self._index(before, None)
        self._report(table, Change(last.version, "DELETED", last, before))
        return last

    def _report(self, table: Table, change: Change) -> None:
        table.append(change)
        for listener in self.listeners:
            listener(change)

    def _index(self, before: Snapshot | None, after: Snapshot | None) -> None:
        old = owner_uids(before) if before else []
        new = owner_uids(after) if after else []
        if old == new:
            return
        some = after or before
        assert some is not None
        mark = (some.kind, some.key)
        for uid in old:
            held = self.dependents.get(uid, {})
            held.pop(mark, None)
            if not held:
                self.dependents.pop(uid, None)
        for uid in new:
            self.dependents.setdefault(uid, {})[mark] = None

    def dependents_of(self, uid: str) -> Iterator[Snapshot]:
        for kind, key in list(self.dependents.get(uid, ())):
            if (snapshot := self.table(kind).objects.get(key)) is not None:
                yield snapshot

    def compact(self, kind: Kind | None = None) -> None:
        """Forget the log: older versions are then too old."""
        for some, table in self.tables.items():
            if kind is None or some is kind:
                table.log.clear()
                table.floor = self.next_version()
                table.wake()

    def drop(self, kind: Kind) -> None:
        """All objects of a kind that is no longer served."""
        table = self.tables.pop(kind, None)
        for snapshot in table.objects.values() if table else ():
            self.uids.pop(snapshot.uid, None)
            self._index(snapshot, None)
        if table:
            table.wake()


def owner_uids(snapshot: Snapshot) -> list[str]:
    references = snapshot.body["metadata"].get("ownerReferences") or []
    return [reference.get("uid", "") for reference in references]


def too_old_page() -> ApiError:
    return expired(
        "The provided continue parameter is too old to display a consistent list result. You can "
        "start a new list without the continue parameter, or use the continue token in this "
        "response to retrieve the remainder of the results."
    )
