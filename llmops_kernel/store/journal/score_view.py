"""The view of a score run: rows, rates, metrics and samples."""

from __future__ import annotations

from collections.abc import Iterable

from llmops_kernel.metrics.events import AnyEvent, EvalEvent, ProgressEvent
from llmops_kernel.store.journal.view import RunView

_PACE_EVENTS = 10


class ScoreView(RunView):
    """A RunView with what scoring reports."""

    def __init__(self, events: Iterable[AnyEvent] = (), *, kind: str = "score") -> None:
        super().__init__(events, kind=kind)

    @property
    def evaluations(self) -> list[EvalEvent]:
        """Return the reports with metrics or samples, by time."""
        return self._of(EvalEvent)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the whole table; empty until the end."""
        reported = [one.metrics for one in self.evaluations if one.metrics]
        return reported[-1] if reported else {}

    @property
    def samples(self) -> tuple[dict[str, str], ...]:
        """The newest rows with their answers."""
        reported = [one.samples for one in self.evaluations if one.samples]
        return reported[-1] if reported else ()

    def value(self, name: str) -> float | None:
        """Return the newest number of a name; None before it was reported.

        Rates are of the last seconds, at the end of the whole attempt.
        """
        for event in reversed(self._of(ProgressEvent)):
            if name in event.values:
                return event.values[name]
        return None

    def eta_s(self, now_s: float) -> float | None:
        """Seconds until the last row at the recent pace; None where the pace is unknown."""
        del now_s
        reported = [e for e in self._of(ProgressEvent) if e.attempt == self.attempt]
        if self.is_terminal or len(reported) < 2:
            return None
        first, last = reported[-_PACE_EVENTS:][0], reported[-1]
        rows, seconds = last.done - first.done, last.time_s - first.time_s
        if rows <= 0 or seconds <= 0 or last.total is None:
            return None
        return (last.total - last.done) * seconds / rows
