"""The growing answers of models, journaled a few times a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.metrics.events import AnswerEvent
from llmops_kernel.score.engines.protocol import Answer, Job, Prompt

EVERY_S = 0.1
"""Between two events of one answer: fluent to read, and a small journal."""
_WAIT_S = 0.05
_CANCEL_S = 2.0

Emit = Callable[[AnswerEvent], None]


class AnswerStream:
    """The answer of one model: keeps the newest part and journals what was added."""

    def __init__(self, model: str, emit: Emit) -> None:
        self.model = model
        self.answer = Answer(0)
        self._emit = emit
        self._sent = ""
        self._sent_s = float("-inf")
        self._first: tuple[float, int] | None = None
        """When the first part came, and how many tokens it had."""
        self._last_s = 0.0
        self.is_over = self.was_cancelled = False
        self.error: LLMOpsError | None = None

    def take(self, answer: Answer) -> None:
        """Keep a newer part; an answer without tokens has not begun."""
        self.answer = answer
        self._last_s = time.monotonic()
        if self._first is None and answer.output_tokens:
            self._first = (self._last_s, answer.output_tokens)

    def tick(self) -> None:
        """Journal what was added, unless the last event is too recent."""
        now_s = time.monotonic()
        if not self.is_over and self.answer.text != self._sent and now_s - self._sent_s >= EVERY_S:
            self._sent_s = now_s
            self._write()

    def end(self, error: LLMOpsError | None = None, *, cancelled: bool = False) -> None:
        """Journal the end, once."""
        if self.is_over:
            return
        self.is_over, self.error, self.was_cancelled = True, error, cancelled
        if error is None and self.answer.error:
            self.error = LLMOpsError(self.answer.error)
        failed = self.error is not None
        self._write(finish="error" if failed else "cancelled" if cancelled else self.answer.finish)

    def _write(self, finish: str = "") -> None:
        text = self.answer.text
        start = len(self._sent) if text.startswith(self._sent) else _common(self._sent, text)
        event = AnswerEvent.model_validate(
            {
                "model": self.model,
                "start": start,
                "text": text[start:],
                "output_tokens": self.answer.output_tokens,
                "prompt_tokens": self.answer.prompt_tokens or None,
                "is_final": self.is_over,
                "finish": finish,
                "error": self.error.message if self.error else "",
                "remedy": self.error.remedy if self.error else "",
                "tokens_per_second": self._rate(),
            }
        )
        self._emit(event)
        self._sent = text

    def _rate(self) -> float | None:
        if self._first is None:
            return None
        seconds, tokens = self._last_s - self._first[0], self.answer.output_tokens - self._first[1]
        return tokens / seconds if seconds > 0 and tokens > 0 else None


def _common(left: str, right: str) -> int:
    pairs = zip(left, right, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


class AnswerReader:
    """Reads the streams of engines until all have ended or the turn is stopped."""

    def __init__(self, *, key: str, stopped: Callable[[], bool], begun: Callable[[], None]) -> None:
        """Call `begun` when the first part of any answer has come."""
        self._key, self._stopped, self._begun = key, stopped, begun
        self._open: dict[Any, tuple[AnswerStream, Any, str]] = {}
        """Ray's stream of answers -> ours, the engine's actor, and the name of the call."""
        self._has_begun = False

    def start(self, stream: AnswerStream, engine: Any, job: Job, prompt: Prompt) -> None:
        key = f"{self._key}/{stream.model}"
        call = engine.stream.options(num_returns="streaming").remote(job, prompt, key=key)
        self._open[call] = (stream, engine, key)

    def poll(self) -> bool:
        """Read what has come; return False when nothing is left to read."""
        import ray

        if not self._open:
            return False
        if self._stopped():
            self._cancel()
            return False
        ready, _ = ray.wait(list(self._open), num_returns=1, timeout=_WAIT_S)
        for call in ready:
            self._read(call)
        for stream, _, _ in self._open.values():
            stream.tick()
        return True

    def _read(self, call: Any) -> None:
        import ray

        stream = self._open[call][0]
        try:
            answer: Answer = ray.get(next(call))
        except StopIteration:
            del self._open[call]
            stream.end()
            return
        except Exception as error:
            del self._open[call]
            stream.end(_loss_error(error))
            return
        stream.take(answer)
        if not self._has_begun and (answer.output_tokens or answer.error):
            self._has_begun = True
            self._begun()
        if answer.is_final:
            del self._open[call]
            stream.end()

    def _cancel(self) -> None:
        """End the calls in the engines: they would go on to the longest answer."""
        import ray

        calls = [engine.cancel.remote(key) for _, engine, key in self._open.values()]
        # A message that is not sent before this process ends would be lost.
        ray.wait(calls, num_returns=len(calls), timeout=_CANCEL_S)
        end_all([stream for stream, _, _ in self._open.values()], cancelled=True)
        self._open.clear()


def end_all(
    streams: Sequence[AnswerStream], error: LLMOpsError | None = None, *, cancelled: bool = False
) -> None:
    for stream in streams:
        stream.end(error, cancelled=cancelled)


def _loss_error(error: Exception) -> LLMOpsError:
    import ray

    cause = getattr(error, "cause", None)
    if isinstance(cause, LLMOpsError):
        return cause
    if isinstance(error, ray.exceptions.RayActorError):
        return LLMOpsError(
            "The engine's process died while it answered.",
            remedy="ask again: Ray restarts it; if it dies again, memory probably runs out",
        )
    last = (str(error).strip().splitlines() or [""])[-1]
    return LLMOpsError(
        f"The engine failed: {type(error).__name__}: {last}", remedy="ask again, or `llmops logs`"
    )
