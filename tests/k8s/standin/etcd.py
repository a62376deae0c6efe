"""What an API server has on its disk: objects and tokens are there again after a SIGKILL.

Each change is appended before its request is answered. A record that was being written when the
process was killed was never answered, and is cut off.
"""

from __future__ import annotations

import pickle
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.k8s.standin.api.auth import User
from tests.k8s.standin.api.state import State
from tests.k8s.standin.objects.fieldsets import Owner
from tests.k8s.standin.objects.kinds import CRD, Registry, from_definition
from tests.k8s.standin.objects.store import Body, Change, Key, Snapshot

_LENGTH = struct.Struct("<I")
_SKIPPED_VERSIONS = 1000
"""Versions that were given to no object, as by a compaction, must not be given again."""
_Place = tuple[str, str, Key]
"""Group, plural, key."""


@dataclass(frozen=True)
class _Object:
    """One change; no body: it is gone."""

    place: _Place
    version: int
    body: Body | None
    owners: tuple[Owner, ...] = ()


@dataclass(frozen=True)
class _Token:
    token: str
    user: User
    until_s: float | None
    """By the clock of the machine."""


@dataclass
class _Content:
    objects: dict[_Place, _Object] = field(default_factory=dict)
    tokens: list[_Token] = field(default_factory=list)
    version: int = 0

    def add(self, record: _Object | _Token) -> None:
        if isinstance(record, _Token):
            self.tokens.append(record)
            return
        self.version = max(self.version, record.version)
        if record.body is not None:
            self.objects[record.place] = record
            return
        gone = self.objects.pop(record.place, None)
        if gone is not None and record.place[:2] == (CRD.group, CRD.plural):
            spec = (gone.body or {})["spec"]
            kind = (spec["group"], spec["names"]["plural"])
            self.objects = {place: one for place, one in self.objects.items() if place[:2] != kind}


class Etcd:
    """One file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def restore(self, state: State) -> bool:
        """Give a new server what an earlier one has written; return whether there was one."""
        content = self._read()
        if not content.version:
            return False
        store = state.store
        for part in (store.tables, store.uids, store.dependents):
            part.clear()
        store.version = content.version + _SKIPPED_VERSIONS
        _define(state.registry, content)
        for (group, plural, _), record in content.objects.items():
            kind = next(k for k in state.registry.kinds if (k.group, k.plural) == (group, plural))
            assert record.body is not None
            store.keep(Snapshot(kind, record.body, record.owners))
        for token in content.tokens:
            left_s = None if token.until_s is None else token.until_s - time.time()
            state.auth.add(token.token, token.user, left_s)
        return True

    def follow(self, state: State) -> None:
        """Write what there is now, and each change from now on."""
        new = self._path.with_suffix(".new")
        self._file = new.open("wb")
        now_s = time.monotonic()
        for token, user in state.auth.tokens.items():
            until_s = state.auth.expiry.get(token)
            self._new_token(token, user, None if until_s is None else until_s - now_s)
        for snapshot in state.store.uids.values():
            self._changed(Change(snapshot.version, "ADDED", snapshot, None))
        new.replace(self._path)
        state.store.listeners.append(self._changed)
        state.auth.on_new_token = self._new_token

    def _changed(self, change: Change) -> None:
        after = change.after
        place = (after.kind.group, after.kind.plural, after.key)
        is_gone = change.type == "DELETED"
        body, owners = (None, ()) if is_gone else (after.body, after.owners)
        self._write(_Object(place, change.version, body, owners))

    def _new_token(self, token: str, user: User, lifetime_s: float | None) -> None:
        self._write(_Token(token, user, None if lifetime_s is None else time.time() + lifetime_s))

    def _write(self, record: _Object | _Token) -> None:
        data = pickle.dumps(record)
        self._file.write(_LENGTH.pack(len(data)) + data)
        self._file.flush()

    def _read(self) -> _Content:
        """Read all whole records; cut off what comes after them."""
        content, end = _Content(), 0
        data = self._path.read_bytes() if self._path.exists() else b""
        while len(data) >= end + _LENGTH.size:
            begin = end + _LENGTH.size
            (length,) = _LENGTH.unpack_from(data, end)
            if len(data) < begin + length:
                break
            content.add(pickle.loads(data[begin : begin + length]))
            end = begin + length
        if end < len(data):
            with self._path.open("r+b") as file:
                file.truncate(end)
        return content


def _define(registry: Registry, content: _Content) -> None:
    for (group, plural, _), record in content.objects.items():
        if (group, plural) == (CRD.group, CRD.plural) and record.body is not None:
            registry.add(from_definition(record.body))
