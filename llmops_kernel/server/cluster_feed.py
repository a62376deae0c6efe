"""Topic `clusters`: all clusters of all providers, each asked in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from llmops_kernel.errors import ClusterNotFoundError, LLMOpsError
from llmops_kernel.providers.protocol import ClusterInfo, ClusterProvider, ClusterState
from llmops_kernel.providers.registry import providers as all_providers
from llmops_kernel.server.hub import Cursor, Frame, Json, frame
from llmops_kernel.server.operations import Operations
from llmops_kernel.server.wire.clusters import ClusterList, ClusterRow
from llmops_kernel.server.wire.common import OperationInfo

KINDS = ("up", "suspend", "resume", "scale", "delete")
"""Kinds of operations that change a cluster; `what` is then its name."""
PATIENCE_S = 1.0
"""How long a round waits for slow clusters; their rows are updated once they have answered.

A caller may be more patient with clusters of which nothing is known.
"""
_MIN_PERIOD_S = 1.0
_SLOW_S = 4.0
_THREADS = 16
_LOG = logging.getLogger(__name__)


@dataclass
class _ClusterEntry:
    provider: ClusterProvider
    info: ClusterInfo | None = None
    checked_s: float | None = None
    error: LLMOpsError | None = None
    asked_s: float = 0.0
    asking: Future[ClusterInfo] | None = None
    is_stale: bool = field(default=False)
    """Whether it changed while it was being asked."""

    @property
    def is_unknown(self) -> bool:
        """Return whether there is nothing to show of it: neither a state nor an error."""
        return self.info is None and self.error is None


class ClustersFeed:
    """Polls the clusters.

    A slow or dead one hides no other: its last state stays, marked as old.
    """

    period_s = 2.0

    def __init__(
        self,
        operations: Operations,
        *,
        providers: Callable[[], Sequence[ClusterProvider]] = all_providers,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._operations = operations
        self._providers = providers
        self._patience_s = patience_s
        self._known: dict[str, _ClusterEntry] = {}
        self._running: list[OperationInfo] = []
        self._rows: list[ClusterRow] = []
        self._version = 0
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="llmops-cluster")

    def poll(self) -> None:
        """Poll all providers, then raise the error of one that cannot even name its clusters."""
        began_s = time.time()
        error = self._find()
        self._ask(began_s, changed=self._look_at_operations())
        self._fill()
        asking = [entry.asking for entry in self._known.values() if entry.asking is not None]
        is_incomplete = any(entry.is_unknown for entry in self._known.values())
        wait(
            asking, timeout=self._patience_s if is_incomplete else min(self._patience_s, PATIENCE_S)
        )
        self._collect()
        self._show(self._compose(time.time()))
        if error is not None:
            raise error

    def rows(self) -> list[ClusterRow]:
        return self._rows

    def news(self, cursor: Cursor, have: Json) -> tuple[list[Frame], Cursor]:
        """Return the whole list whenever anything in it changed."""
        # Before the first look there is no list: an empty one would be a lie.
        if cursor == self._version or self._version == 0:
            return [], cursor
        listing = ClusterList(clusters=self._rows, now_s=time.time())
        return [frame("clusters", listing)], self._version

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _find(self) -> LLMOpsError | None:
        """Find the clusters; those of a provider in trouble stay."""
        present: dict[str, ClusterProvider] = {}
        error: LLMOpsError | None = None
        for provider in self._providers():
            try:
                names: Sequence[str] = provider.names()
            except LLMOpsError as trouble:
                error = trouble
                names = [n for n, k in self._known.items() if k.provider.name == provider.name]
                for name in names:
                    self._known[name].error = trouble
            present |= dict.fromkeys(names, provider)
        for name in self._known.keys() - present.keys():
            del self._known[name]
        for name, provider in present.items():
            self._known.setdefault(name, _ClusterEntry(provider)).provider = provider
        return error

    def _look_at_operations(self) -> set[str]:
        """Return the clusters of which an operation began or ended since the last look."""
        before = {(info.what, info.id) for info in self._running}
        self._running = [info for kind in KINDS for info in self._operations.running(kind)]
        now = {(info.what, info.id) for info in self._running}
        return {name for name, _ in before ^ now}

    def _ask(self, now_s: float, *, changed: set[str]) -> None:
        for name, entry in self._known.items():
            entry.is_stale |= name in changed
            # Progress lines wake the feed often; that is no reason to ask Ray as often.
            if entry.asking is None and (entry.is_stale or now_s - entry.asked_s >= _MIN_PERIOD_S):
                entry.is_stale = False
                entry.asked_s = now_s
                entry.asking = self._threads.submit(entry.provider.get, name)

    def _fill(self) -> None:
        """Take clusters that wait for a thread from their provider's list, if there are many.

        A list says less of each, but its answer does not take longer for more of them; far away,
        each cluster's own answer takes seconds.
        """
        if len(self._known) <= _THREADS:
            return
        new = {name: entry for name, entry in self._known.items() if entry.is_unknown}
        for provider in {id(entry.provider): entry.provider for entry in new.values()}.values():
            try:
                infos = {info.name: info for info in provider.list()}
            except LLMOpsError:
                continue  # Each of them says why, once it is asked.
            for name, entry in new.items():
                if entry.provider is provider:
                    entry.info = infos.get(name)

    def _collect(self) -> None:
        for name, entry in list(self._known.items()):
            if entry.asking is None or not entry.asking.done():
                continue
            answer, entry.asking = entry.asking, None
            try:
                entry.info, entry.error = answer.result(), None
                entry.checked_s = time.time()
            except ClusterNotFoundError:
                del self._known[name]
            except LLMOpsError as error:
                entry.error = error
            except Exception as error:
                # A provider's bug must not hide the other clusters.
                _LOG.exception("cluster %s", name)
                entry.error = LLMOpsError(repr(error), remedy="see the Jupyter server's log")

    def _compose(self, now_s: float) -> list[ClusterRow]:
        operations = {info.what: info for info in self._running}
        rows = [
            _row(name, entry, operations.get(name), now_s) for name, entry in self._known.items()
        ]
        rows += [
            _starting_row(info) for name, info in operations.items() if _is_new(info, self._known)
        ]
        return sorted(rows, key=lambda row: row.name)

    def _show(self, rows: list[ClusterRow]) -> None:
        with self._lock:
            if self._version == 0 or _reported(rows) != _reported(self._rows):
                self._version += 1
            self._rows = rows


def _reported(rows: list[ClusterRow]) -> list[Json]:
    # Both times change with every look and would make news of nothing.
    return [row.model_dump(exclude={"info": {"idle_s"}, "checked_s": True}) for row in rows]


def _row(
    name: str, entry: _ClusterEntry, operation: OperationInfo | None, now_s: float
) -> ClusterRow:
    info, error = entry.info, entry.error
    is_slow = entry.asking is not None and now_s - entry.asked_s > _SLOW_S
    stale = error.message if error else "It has not answered yet" if is_slow else ""
    idle_since_s = None
    if info is not None and info.idle_s is not None and entry.checked_s is not None:
        # Whole seconds: the same moment, measured twice, must be the same number.
        idle_since_s = float(round(entry.checked_s - info.idle_s))
    return ClusterRow(
        name=name,
        provider=entry.provider.name,
        info=info,
        stale=stale,
        remedy=error.remedy if error else "",
        checked_s=entry.checked_s,
        idle_since_s=idle_since_s,
        **_operation(operation),
    )


def _is_new(info: OperationInfo, entries: dict[str, _ClusterEntry]) -> bool:
    return info.kind == "up" and info.what not in entries


def _starting_row(operation: OperationInfo) -> ClusterRow:
    """Return the row of a cluster that is being started and has no record yet."""
    info = ClusterInfo(name=operation.what, provider="", state=ClusterState.STARTING)
    return ClusterRow(
        name=operation.what,
        provider="",
        info=info,
        checked_s=operation.started_s,
        **_operation(operation),
    )


def _operation(operation: OperationInfo | None) -> dict[str, str]:
    if operation is None:
        return {}
    progress = operation.lines[-1] if operation.lines else ""
    return {"operation_id": operation.id, "doing": operation.kind, "progress": progress}
