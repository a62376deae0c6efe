"""Waits for the run's turn, and journals that it waits for the cluster's resources."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from llmops_kernel.driver.queue.cluster_use import ClusterUse, read_cluster_use
from llmops_kernel.driver.queue.place import Place, find_place
from llmops_kernel.driver.queue.turn import Turn
from llmops_kernel.metrics.events import Event, PhaseEvent, QueueEvent

FIRST_LOOK_S = 0.4
"""A run that does not wait has its resources by then, and never looks."""
PERIOD_S = 1.0
_LONGEST_S = 5.0
_STOP_S = 0.2
QUEUE_PHASE = "queue"


class QueueWatch:
    """Looks at the cluster from `begin` to `end`, in a thread.

    `most` is what Ray's autoscaler can bring it to. `run` names the run in the queue; without it
    there is no order.
    """

    def __init__(
        self,
        emit: Callable[[Event], object],
        *,
        run: str = "",
        most: Mapping[str, float] | None = None,
        turn: Turn | None = None,
        look: Callable[[], ClusterUse] | None = None,
        first_s: float = FIRST_LOOK_S,
        period_s: float = PERIOD_S,
    ) -> None:
        self._emit, self._look = emit, look or partial(read_cluster_use, most)
        self._turn = turn or (Turn(run, look=self._look) if run else None)
        self._first_s, self._period_s = first_s, period_s
        self._lock = threading.Lock()
        self._written: Place | None = None
        self._ended = threading.Event()
        self._ended.set()

    @property
    def is_queued(self) -> bool:
        """Whether the last look found that the run waits for resources."""
        return self._written is not None

    def begin(
        self, wanted: Mapping[str, float] | None = None, *, stop: threading.Event | None = None
    ) -> bool:
        """Start to look; call it before resources are requested.

        With what is `wanted`, returns when no run that came before waits for some of the same:
        True, or False when `end` was called or `stop` was set meanwhile, after which nothing may
        be requested.
        """
        self._ended.set()
        self._ended = ended = threading.Event()
        if wanted and self._turn is not None and not self._has_turn(wanted, ended, stop):
            self.end()
            return False
        arguments = (ended,)
        threading.Thread(target=self._run, args=arguments, daemon=True, name="llmops-queue").start()
        return True

    def end(self) -> None:
        """The resources are there, or are not wanted any more."""
        self._ended.set()
        self._leave()
        self._write(None)

    def _has_turn(
        self,
        wanted: Mapping[str, float],
        ended: threading.Event,
        stop: threading.Event | None,
    ) -> bool:
        assert self._turn is not None
        try:
            self._turn.ask(wanted)
            while (place := self._turn.waits_behind()) is not None:
                self._write(place)
                # Each look asks Ray's control plane, and many may wait.
                until_s = time.monotonic() + min(_LONGEST_S, self._period_s * (place.place or 1))
                while time.monotonic() < until_s:
                    if ended.wait(_STOP_S) or (stop is not None and stop.is_set()):
                        return False
        except Exception as error:
            # The head is away for a moment, or another release of Ray has no such store: Ray then
            # decides who comes first.
            print(f"llmops: this run does not keep its place in the queue ({error})", flush=True)
        return not ended.is_set()

    def _leave(self) -> None:
        if self._turn is not None:
            with contextlib.suppress(Exception):  # A ticket of a driver that has ended counts not.
                self._turn.leave()

    def _place(self) -> Place | None:
        """Return what the request waits for in Ray, with this run's place among those that wait."""
        use = self._look()
        found = find_place(use)
        order = self._turn.place(use) if found is not None and self._turn is not None else None
        return found if found is None or order is None else Place(found.reason, *order)

    def _run(self, ended: threading.Event) -> None:
        wait_s = self._first_s
        while not ended.wait(wait_s):
            wait_s = self._period_s
            # The head may be away for a moment; a private name may have another meaning in
            # another release of Ray. The state stays as it is then.
            with contextlib.suppress(Exception):
                place = self._place()
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
