"""The view of one turn of a chat: the growing answer of each model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from llmops_kernel.metrics.events import AnswerEvent, AnyEvent, Event
from llmops_kernel.store.journal.view import RunView


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
