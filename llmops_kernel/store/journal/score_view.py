"""The view of a score run: rows, rates, metrics and samples."""

from __future__ import annotations

from collections.abc import Iterable

from llmops_kernel.metrics.events import AnyEvent, ProgressEvent
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.journal.whole_run import TimeLeft

_PACE_EVENTS = 10
_LAST_PHASE = "first_rows"
"""Its end is the end of the start-up."""


class ScoreView(RunView):
    """A RunView with what scoring reports."""

    def __init__(self, events: Iterable[AnyEvent] = (), *, kind: str = "score") -> None:
        super().__init__(events, kind=kind)

    @property
    def metrics(self) -> dict[str, float]:
        """Return the metrics of the whole table; empty until the end."""
        reported = [evaluation.metrics for evaluation in self.evaluations if evaluation.metrics]
        return reported[-1] if reported else {}

    @property
    def samples(self) -> tuple[dict[str, str], ...]:
        """Return the newest rows with their answers."""
        return self.sampled.samples if self.sampled is not None else ()

    def value(self, name: str) -> float | None:
        """Return the newest number of a name; None before it was reported.

        Rates are of the last seconds, at the end of the whole attempt.
        """
        for event in reversed(self._of(ProgressEvent)):
            if name in event.values:
                return event.values[name]
        return None

    @property
    def submit_to_first_step_s(self) -> float | None:
        """Return seconds from the newest attempt's first phase to its first rows."""
        ends = [s.end_s for s in self.phases() if s.name == _LAST_PHASE and s.end_s is not None]
        begins = [span.begin_s for span in self.phases()]
        return max(0.0, min(ends) - min(begins)) if ends else None

    def time_left(self, now_s: float) -> TimeLeft | None:
        """Return the time until the last row at the recent pace; None where the pace is unknown."""
        del now_s
        reported = [e for e in self._of(ProgressEvent) if e.attempt == self.attempt]
        if self.is_terminal or len(reported) < 2:
            return None
        first, last = reported[-_PACE_EVENTS:][0], reported[-1]
        rows, seconds = last.done - first.done, last.time_s - first.time_s
        if rows <= 0 or seconds <= 0 or last.total is None:
            return None
        return TimeLeft((last.total - last.done) * seconds / rows)
