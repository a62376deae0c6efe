"""What the handlers share; nothing in it that could not be found again after a restart."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from llmops_kernel.jobs.guard import GuardThread
from llmops_kernel.runs.store import RunStore
from llmops_kernel.server.cluster_feed import ClustersFeed
from llmops_kernel.server.dashboard_clients import DashboardClients
from llmops_kernel.server.followers import Followers
from llmops_kernel.server.hub import Hub
from llmops_kernel.server.operations import Operations, OperationsFeed
from llmops_kernel.server.run_feed import RunFeed, RunsFeed
from llmops_kernel.server.run_rows import RunRows

MANAGER_KEY = "llmops_manager"
_THREADS = 24


class Manager:
    """One a Jupyter server; lives as long as it does."""

    def __init__(self, *, root_dir: Path, dashboard_writable: bool = False) -> None:
        self.root_dir = root_dir.resolve()
        self.dashboard_writable = dashboard_writable
        self.executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="llmops-server")
        self.hub = Hub(self.executor)
        self.operations = Operations(changed=self._operation_changed)
        self.hub.register("operations", lambda _: OperationsFeed(self.operations))
        store = RunStore()
        self.store = store
        self.followers = Followers(store)
        self.run_rows = RunRows(store, self.followers)
        self.hub.register("runs", lambda _: RunsFeed(self.run_rows))
        self.hub.register("run/", partial(RunFeed, followers=self.followers, store=store))
        self.hub.register("clusters", lambda _: ClustersFeed(self.operations))
        self.dashboards = DashboardClients()
        self.guard = GuardThread()
        self.guard.start()

    def _operation_changed(self) -> None:
        for topic in ("operations", "clusters", "runs"):
            self.hub.wake(topic)

    async def close(self) -> None:
        self.guard.stop(timeout_s=0.0)
        await self.hub.close()
        await self.dashboards.close()
        self.executor.shutdown(wait=False, cancel_futures=True)
