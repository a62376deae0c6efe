"""The views of a score run and of a turn of a chat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from llmops_kernel.metrics.events import AnswerEvent, AnyEvent, Event, ProgressEvent
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


# --- The view of one turn of a chat: the growing answer of each model ---


@dataclass(frozen=True, kw_only=True)
class ChatAnswer:
    """Answer of a model up to now; an unknown number is None."""

    model: str
    """`base`, `tuned`."""
    text: str = ""
    is_final: bool = False
    finish: str = ""
    """`stop`, `length` (cut at the longest answer), `error`, `cancelled`; empty until the end."""
    error: str = ""
    remedy: str = ""
    prompt_tokens: int | None = None
    output_tokens: int = 0
    tokens_per_second: float | None = None
    first_token_s: float | None = None
    """From the submission to the first text."""


class ChatView(RunView):
    """A RunView with the answers of a turn."""

    def __init__(self, events: Iterable[AnyEvent] = (), *, kind: str = "chat") -> None:
        super().__init__(events, kind=kind)

    @property
    def answers(self) -> dict[str, ChatAnswer]:
        """Return the answers by model, in the order in which they began."""
        by_model: dict[str, ChatAnswer] = {}
        for event in self._of(AnswerEvent):
            before = by_model.get(event.model) or ChatAnswer(model=event.model)
            by_model[event.model] = self._grown(before, event)
        return by_model

    def _grown(self, before: ChatAnswer, event: AnswerEvent) -> ChatAnswer:
        first_s = before.first_token_s
        if first_s is None and event.text:
            first_s = self._since_submit_s(event.time_s)
        return replace(
            before,
            text=before.text[: event.start] + event.text,
            is_final=event.is_final,
            finish=event.finish,
            error=event.error,
            remedy=event.remedy,
            prompt_tokens=event.prompt_tokens,
            output_tokens=event.output_tokens,
            tokens_per_second=event.tokens_per_second,
            first_token_s=first_s,
        )

    def _since_submit_s(self, time_s: float) -> float | None:
        spans = self.phases()
        return max(0.0, time_s - min(span.begin_s for span in spans)) if spans else None

    @property
    def rows(self) -> Sequence[Event]:
        """Return the end of each answer."""
        return [event for event in self._of(AnswerEvent) if event.is_final]

    def mean(self, name: str) -> float | None:
        """Return the mean of a number over the answers that have it; None without any."""
        reported = [getattr(answer, name) for answer in self.answers.values()]
        values = [value for value in reported if value is not None]
        return sum(values) / len(values) if values else None
