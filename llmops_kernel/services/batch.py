"""Several runs of one call: submitted as many at a time as fit, and waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Generic, TypeVar

from llmops_kernel.config.models.section import RunConfig
from llmops_kernel.kinds.registry import view_of
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.services.runs import Run
from llmops_kernel.store.store import RunStore

POLL_S = 0.1
SHOWN_EVERY_S = 1.0
T = TypeVar("T")


class Batch(Generic[T]):
    """Items that are waiting, and the runs of those that were submitted and have not ended."""

    def __init__(self, submit: Callable[[T], Run], *, parallel: int) -> None:
        self._submit, self._parallel = submit, parallel
        self.live: dict[T, Run] = {}

    def run(
        self,
        waiting: Iterable[T],
        *,
        on_change: Callable[[], None],
        on_end: Callable[[T], None],
    ) -> None:
        """Return when all have ended; `on_change` is called about once a second.

        An item is taken when there is room for it.

        An interrupt, or an error of a submission, leaves what runs running.
        """
        queue, has_more = iter(waiting), True
        try:
            while has_more or self.live:
                while has_more and len(self.live) < self._parallel:
                    for item in islice(queue, 1):
                        self.live[item] = self._submit(item)
                        break
                    else:
                        has_more = False
                on_change()
                if self.live:
                    self._wait_for_end(on_end)
            on_change()
        finally:
            for run in self.live.values():
                run.close()
            self.live.clear()

    def _wait_for_end(self, on_end: Callable[[T], None]) -> None:
        """Return when a run has ended, or after a second."""
        until_s = time.monotonic() + SHOWN_EVERY_S
        while time.monotonic() < until_s:
            time.sleep(POLL_S)
            ended = [item for item, run in self.live.items() if run.has_ended]
            for item in ended:
                self.live.pop(item).close()
                on_end(item)
            if ended:
                return


def never_began(store: RunStore, run_id: str) -> bool:
    """Return whether a run has failed before its driver reported anything.

    So it is with a client that was killed while it submitted: such a run is tried again.
    """
    view = view_of(store, run_id)
    return view.state == "FAILED" and not view.has_begun


def fitting(cluster: Cluster, configs: Iterable[RunConfig]) -> int:
    """Return how many of these runs at a time the cluster has devices for.

    One after the other on a machine of CPUs: they would take them from each other.
    """
    info = cluster.info
    workers = max([1, *(config.worker_processes for config in configs)])
    if info.num_gpus:
        return max(1, int(info.num_gpus) // workers)
    if cluster.provider.shares_disk or not info.num_cpus:
        return 1
    return max(1, int(info.num_cpus) // workers)
