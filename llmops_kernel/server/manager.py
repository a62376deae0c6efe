"""State that the handlers share. A restarted server can read all of it again."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from llmops_kernel.errors import StoreError
from llmops_kernel.jobs.guard import GuardThread
from llmops_kernel.server.chat.feed import ChatFeed
from llmops_kernel.server.clusters.feed import ClustersFeed
from llmops_kernel.server.dashboard.clients import DashboardClients
from llmops_kernel.server.dashboard.views import Views
from llmops_kernel.server.live.hub import Hub
from llmops_kernel.server.live.operations import Operations, OperationsFeed
from llmops_kernel.server.run_table.live import LiveTable
from llmops_kernel.server.runs.feed import RunFeed, RunsFeed
from llmops_kernel.server.runs.followers import Followers
from llmops_kernel.server.runs.output_comparisons import OutputComparisons
from llmops_kernel.server.runs.rows import RunRows
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.garbage import sweep
from llmops_kernel.store.journal.view import FEW_CELLS

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
