"""State that the handlers share. A restarted server can read all of it again."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from llmops_kernel.errors import StoreError
from llmops_kernel.jobs.guard import GuardThread
from llmops_kernel.server.chat_feed import ChatFeed
from llmops_kernel.server.cluster_feed import ClustersFeed
from llmops_kernel.server.dashboard.clients import DashboardClients
from llmops_kernel.server.dashboard.views import Views
from llmops_kernel.server.hub import Hub
from llmops_kernel.server.operations import Operations, OperationsFeed
from llmops_kernel.server.run_table import LiveTable
from llmops_kernel.server.runs.feed import RunFeed, RunsFeed
from llmops_kernel.server.runs.followers import Followers
from llmops_kernel.server.runs.rows import RunRows
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.comparison import compare_outputs
from llmops_kernel.store.garbage import sweep
from llmops_kernel.store.journal.view import FEW_CELLS
from llmops_kernel.store.store import RunStore

if TYPE_CHECKING:
    from llmops_kernel.services.scoring.compare import OutputComparison


MANAGER_KEY = "llmops_manager"
THREADS = 24
OWN_THREADS = 12
_LOG = logging.getLogger(__name__)


class Manager:
    """The shared state of one Jupyter server, for as long as it runs."""

    def __init__(
        self,
        *,
        root_dir: Path,
        dashboard_writable: bool = False,
        backend: Backend | None = None,
    ) -> None:
        self.backend = backend or Backend()
        self.root_dir = root_dir.resolve()
        self.dashboard_writable = dashboard_writable
        self.executor = ThreadPoolExecutor(THREADS, thread_name_prefix="llmops-ask")
        """For what waits for clusters and other servers."""
        self.own_threads = ThreadPoolExecutor(OWN_THREADS, thread_name_prefix="llmops-server")
        self.feed_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="llmops-feed")
        self.hub = Hub(self.feed_threads)
        self.operations = Operations(changed=self._operation_changed)
        self.hub.register("operations", lambda _: OperationsFeed(self.operations))
        store = self.backend.store
        self.store = store
        self.followers = Followers(self.backend)
        # The list follows every run that has not ended: with all its rows that would add up.
        self.run_rows = RunRows(store, Followers(self.backend, live_cells=FEW_CELLS))
        self.run_table = LiveTable(store, self.run_rows)
        self.output_comparisons = OutputComparisons(store)
        self.hub.register("runs", self._runs_feed)
        run_feed = partial(RunFeed, followers=self.followers, store=store)
        self.hub.register("run/", partial(run_feed, differs=self.run_rows.differs))
        self.hub.register("chat/", partial(ChatFeed, backend=self.backend))
        self.hub.register("clusters", self._clusters_feed)
        self.dashboards = DashboardClients()
        self.views = Views()
        self.guard = GuardThread(store=store, providers=self.backend.providers)
        self.guard.start()
        self.own_threads.submit(self._sweep)

    def _sweep(self) -> None:
        """Remove what killed processes have left in the home folder."""
        try:
            removed = sweep(self.store)
        except StoreError as error:
            _LOG.warning("llmops: leftovers were not removed: %s", error)
        else:
            if removed:
                _LOG.info("llmops: removed %d leftovers (`llmops gc` shows them)", len(removed))

    def _runs_feed(self, _: str) -> RunsFeed:
        self.run_table.warm()
        return RunsFeed(self.run_rows)

    def _clusters_feed(self, _: str) -> ClustersFeed:
        return ClustersFeed(self.operations, providers=self.backend.providers)

    def _operation_changed(self) -> None:
        for topic in ("operations", "clusters", "runs"):
            self.hub.wake(topic)

    async def close(self) -> None:
        self.guard.stop(timeout_s=0.0)
        await self.hub.close()
        await self.dashboards.close()
        for threads in (self.executor, self.own_threads, self.feed_threads):
            threads.shutdown(wait=False, cancel_futures=True)


# --- Comparisons of outputs that are kept for the next page of rows ---


_KEPT = 2
"""Comparisons in memory: one of a million rows has about 0.4 GB."""


class OutputComparisons:
    """Comparisons that were asked for lately, so that the next page is not joined anew."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, ...], OutputComparison] = OrderedDict()

    def of(self, refs: Sequence[str]) -> OutputComparison:
        """Return the comparison of two runs. Raises ComparisonError, RunNotFoundError."""
        ids = [self._store.resolve(ref) for ref in refs]
        # A retry may write more rows.
        key = tuple(f"{run_id}/{len(self._store.attempts(run_id))}" for run_id in sorted(ids))
        with self._lock:
            if key not in self._kept:
                self._kept[key] = compare_outputs(self._store, ids)
            self._kept.move_to_end(key)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return self._kept[key]
