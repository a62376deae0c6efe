"""Shows a run's state, steps and phases as metrics of Ray, for Prometheus and the Ray Dashboard."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from llmops_kernel.metrics.events import Event, StepEvent
from llmops_kernel.metrics.run_gauges import GAUGES, RUN_LABELS, RunReadings
from llmops_kernel.store.journal.journal import FolderTail
from llmops_kernel.store.record import RunSpec

STEP_EVERY_S: Final = 0.02
"""Of quicker steps some are left out: to set the gauges takes 33 us, and Ray hands them on every
10 s only."""
FOLLOW_AFTER_S: Final = 10.0
"""A plain script is followed after so long: Ray would not hand on the metrics of a shorter one."""
FOLLOW_EVERY_S: Final = 2.0


class _Gauge(Protocol):
    def set(self, value: float, tags: dict[str, str]) -> None: ...


def ray_gauges() -> dict[str, _Gauge] | None:
    """Return the gauges of a process that is connected to Ray, by name; None in another one."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    from ray.util.metrics import Gauge

    return {
        gauge.name: Gauge(gauge.name, gauge.help, (*RUN_LABELS, *filter(None, [gauge.label])))
        for gauge in GAUGES
    }


class RunMetrics:
    """Sets the gauges from what one process of a run journals.

    Until the process is connected to Ray the newest readings are kept. A gauge lasts as long as
    the process and 20 s, so that the series of ended runs are no burden.
    """

    def __init__(
        self,
        spec: RunSpec,
        *,
        gauges: Callable[[], dict[str, Any] | None] = ray_gauges,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tags = {
            "run": spec.run_id,
            "name": str(spec.config.get("name") or ""),
            "kind": spec.kind,
            "cluster": spec.cluster,
            "user": spec.user,
        }
        self._own_label = {gauge.name: gauge.label for gauge in GAUGES}
        self._readings = RunReadings(submitted_s=spec.submitted_s)
        self._make, self._clock = gauges, clock
        self._gauges: dict[str, Any] | None = None
        self._kept: dict[tuple[str, str], float] = {}
        self._step_s: float | None = None
        self._skipped: StepEvent | None = None

    def take(self, event: Event) -> None:
        """Set the gauges by an event. Never raises: a metric must not end a run."""
        try:
            self._take(event)
        except Exception:
            self._gauges, self._kept = {}, {}  # Ray's metrics do not work here: no more of them.

    def close(self) -> None:
        """Show the last step, if it was left out. Never raises."""
        with suppress(Exception):
            self._show_skipped()

    def _take(self, event: Event) -> None:
        if self._gauges is None:
            self._gauges = self._make()
        if isinstance(event, StepEvent):
            now_s = self._clock()
            if self._step_s is not None and now_s - self._step_s < STEP_EVERY_S:
                self._skipped = event
                return
            self._step_s, self._skipped = now_s, None
        else:
            self._show_skipped()
        self._set(event)

    def _show_skipped(self) -> None:
        if self._skipped is not None:
            last, self._skipped = self._skipped, None
            self._set(last)

    def _set(self, event: Event) -> None:
        for name, label, value in self._readings.of(event):
            self._kept[name, label] = value
        if self._gauges is None:
            return
        for (name, label), value in self._kept.items():
            if gauge := self._gauges.get(name):
                more = {self._own_label[name]: label} if self._own_label[name] else {}
                gauge.set(value, {**self._tags, **more})
        self._kept.clear()


class FollowedJournal:
    """Shows a run whose own process is not connected to Ray, by what it journals on this node."""

    def __init__(
        self,
        spec: RunSpec,
        journal: Path,
        *,
        connect: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`connect` connects this process to Ray, once the run has lasted for a while."""
        self._metrics, self._tail = RunMetrics(spec), FolderTail(journal)
        self._attempt = spec.attempt
        self._connect, self._clock = connect, clock
        self._next_s = clock() + FOLLOW_AFTER_S
        self._is_connected = False

    def look(self, *, is_last: bool = False) -> None:
        """Show what is new, if it is time to, or the run has ended. Never raises."""
        if self._clock() < self._next_s and not (is_last and self._is_connected):
            return
        try:
            if not self._is_connected:
                self._is_connected = True
                self._connect()
            for event in self._tail.read():
                if event.attempt == self._attempt:
                    self._metrics.take(event)
            if is_last:
                self._metrics.close()
            self._next_s = self._clock() + FOLLOW_EVERY_S
        except Exception:
            self._next_s = math.inf
