"""Watches: each reads the log at its own pace, so that a slow reader costs no memory."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.k8s.standin.api.reads import Query, table
from tests.k8s.standin.objects.errors import ApiError, expired
from tests.k8s.standin.objects.kinds import Kind
from tests.k8s.standin.objects.selectors import Test, matcher
from tests.k8s.standin.objects.store import Change, Snapshot, Store, dump

DEFAULT_TIMEOUT_S = 1800


@dataclass(eq=False)
class Watch:
    """One open watch."""

    store: Store
    kind: Kind
    version: str
    namespace: str
    query: Query
    bookmark_s: float
    path: str = ""
    user: str = ""
    as_table: bool = False
    ended: str = ""
    """How a fault ends it: `drop` cuts the connection, `gone` sends 410, `close` is quiet."""
    matches: Test = field(init=False)
    seen: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        labels, fields = self.query.get("labelSelector", ""), self.query.get("fieldSelector", "")
        self.matches = matcher(self.kind, labels, fields)

    def end(self, how: str) -> None:
        self.ended = how
        self.store.table(self.kind).wake()

    async def lines(self) -> AsyncIterator[bytes]:
        """The answer, some whole lines at a time."""
        stated = self.query.get("timeoutSeconds")
        deadline = time.monotonic() + (int(stated) if stated else DEFAULT_TIMEOUT_S)
        try:
            first = self._first()
            if first:
                yield first
            async for part in self._follow(deadline):
                yield part
        except ApiError as error:
            yield self._line("ERROR", dump(error.status()))

    def _first(self) -> bytes:
        """What is there already, unless the watch starts from a version."""
        stated = self.query.get("resourceVersion", "")
        initial = self.query.get("sendInitialEvents") == "true"
        if stated not in ("", "0") and not initial:
            self.seen = int(stated)
            self.store.table(self.kind).since(self.seen)
            return b""
        self.seen = self.store.version
        if self.query.get("sendInitialEvents") == "false":
            return b""
        there = self.store.list(self.kind, self.namespace)
        lines = [self._event("ADDED", item) for item in there if self.matches(item.body)]
        if initial:
            lines.append(self._bookmark(initial=True))
        return b"".join(lines)

    async def _follow(self, deadline: float) -> AsyncIterator[bytes]:
        bookmarks = self.query.get("allowWatchBookmarks") in ("true", "1")
        next_bookmark = time.monotonic() + self.bookmark_s
        while True:
            table = self.store.table(self.kind)
            changed = table.changed
            lines = [line for change in table.since(self.seen) if (line := self._take(change))]
            if bookmarks and time.monotonic() >= next_bookmark:
                # Only here, where nothing can have happened that was not taken.
                next_bookmark = time.monotonic() + self.bookmark_s
                self.seen = max(self.seen, self.store.version)
                lines.append(self._bookmark())
            if lines:
                yield b"".join(lines)
            if self.ended or time.monotonic() >= deadline:
                break
            until = min(deadline, next_bookmark) if bookmarks else deadline
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), max(0.0, until - time.monotonic()))
        if self.ended == "gone":
            raise expired(f"too old resource version: {self.seen} ({self.store.version})")

    def _take(self, change: Change) -> bytes:
        self.seen = max(self.seen, change.version)
        if self.namespace and change.after.key[0] != self.namespace:
            return b""
        now = change.type != "DELETED" and self.matches(change.after.body)
        before = change.before is not None and self.matches(change.before.body)
        if now:
            return self._event("MODIFIED" if before else "ADDED", change.after)
        return self._event("DELETED", change.after) if before else b""

    def _event(self, kind: str, item: Snapshot) -> bytes:
        if self.as_table:
            meta = {"resourceVersion": str(item.version)}
            return self._line(kind, dump(table(self.kind, self.version, [item], meta)))
        return self._line(kind, item.raw_full(self.version))

    def _bookmark(self, *, initial: bool = False) -> bytes:
        meta: dict[str, object] = {"resourceVersion": str(self.seen), "creationTimestamp": None}
        if initial:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        body = {
            "kind": self.kind.kind,
            "apiVersion": self.kind.api_version(self.version),
            "metadata": meta,
        }
        return self._line("BOOKMARK", dump(body))

    @staticmethod
    def _line(kind: str, body: bytes) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)
