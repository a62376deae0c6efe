"""Journals that a run waits for the cluster's resources, for as long as Ray reports it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from llmops_kernel.driver.queue.cluster_use import ClusterUse, read_cluster_use
from llmops_kernel.driver.queue.place import Place, find_place
from llmops_kernel.metrics.events import Event, PhaseEvent, QueueEvent

FIRST_LOOK_S = 0.4
"""A run that does not wait has its resources by then, and never looks."""
PERIOD_S = 1.0
QUEUE_PHASE = "queue"


class QueueWatch:
    """Looks at the cluster from `begin` to `end`, in a thread.

    `most` is what Ray's autoscaler can bring it to.
    """

    def __init__(
        self,
        emit: Callable[[Event], object],
        *,
        most: Mapping[str, float] | None = None,
        look: Callable[[], ClusterUse] | None = None,
        first_s: float = FIRST_LOOK_S,
        period_s: float = PERIOD_S,
    ) -> None:
        self._emit, self._look = emit, look or partial(read_cluster_use, most)
        self._first_s, self._period_s = first_s, period_s
        self._lock = threading.Lock()
        self._written: Place | None = None
        self._ended = threading.Event()
        self._ended.set()

    @property
    def is_queued(self) -> bool:
        """Whether the last look found that the run waits for resources."""
        return self._written is not None

    def begin(self) -> None:
        """Start to look; call it when resources were or are about to be requested."""
        self._ended.set()
        self._ended = threading.Event()
        arguments = (self._ended,)
        threading.Thread(target=self._run, args=arguments, daemon=True, name="llmops-queue").start()

    def end(self) -> None:
        """The resources are there, or are not wanted any more."""
        self._ended.set()
        self._write(None)

    def _run(self, ended: threading.Event) -> None:
        wait_s = self._first_s
        while not ended.wait(wait_s):
            wait_s = self._period_s
            # The head may be away for a moment; a private name may have another meaning in
            # another release of Ray. The state stays as it is then.
            with contextlib.suppress(Exception):
                place = find_place(self._look())
                if not ended.is_set():
                    self._write(place)

    def _write(self, place: Place | None) -> None:
        with self._lock:
            was, self._written = self._written, place
            if place == was:
                return
            now_s = time.time()
            if place is None:
                self._emit(QueueEvent(state="end", time_s=now_s))
                self._emit(PhaseEvent(name=QUEUE_PHASE, state="end", time_s=now_s))
                return
            if was is None:
                self._emit(PhaseEvent(name=QUEUE_PHASE, state="begin", time_s=now_s))
            self._emit(
                QueueEvent(
                    state="begin",
                    reason=place.reason,
                    place=place.place,
                    length=place.length,
                    time_s=now_s,
                )
            )
