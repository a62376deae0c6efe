"""Gets the answers of many prompts from an engine that may die meanwhile."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llmops_kernel.errors import RunError
from llmops_kernel.hardware.load import patience_s
from llmops_kernel.score.engines.protocol import Answer, Job, Prompt

_IN_FLIGHT = 4
"""Calls at once: the engine always has the next requests before it has finished the last."""
_MAX_LOSSES = 30
"""Of the engine during one part, before the run is given up."""
_RETURN_S = 120.0
"""How long Ray may take to start the engine's process again on a machine that is not busy."""
_LOOK_S = 0.2


class CancelledError(Exception):
    """The run was stopped."""


@dataclass
class _Chunk:
    """Consecutive prompts that are sent in one call."""

    first: int
    prompts: Sequence[Prompt]
    targets: Sequence[str]
    rows: Sequence[int]
    losses: int = 0

    def halves(self) -> list[_Chunk]:
        middle = len(self.prompts) // 2
        pieces = [(0, middle), (middle, len(self.prompts))]
        return [
            _Chunk(
                self.first + a,
                self.prompts[a:b],
                self.targets[a:b],
                self.rows[a:b],
                # One alone must fail twice: another job of the same engine may be the cause.
                losses=int(b - a > 1),
            )
            for a, b in pieces
        ]


class AnswerSource:
    """Calls one engine replica; a call that the engine does not survive is made again.

    Prompts that were under way when the engine died are tried one call at a time, and a call that
    it dies of twice is halved: at last one prompt is found, which gets an error as its answer.
    """

    def __init__(
        self,
        find: Callable[[], Any],
        *,
        chunk_rows: int,
        alone: threading.Lock | None = None,
        counted: Callable[[Sequence[Answer]], None] = lambda _: None,
        is_cancelled: Callable[[], bool] = lambda: False,
        caller: str = "",
    ) -> None:
        """`find` returns the replica's actor, which is started if it is gone.

        `alone`: shared by all sources of one engine in this process. While one of them looks for
        the prompt that the engine dies of, the others send nothing. `caller`: by which the
        engine can be told to drop the calls.
        """
        self._alone = alone or threading.Lock()
        self._find = find
        self._engine = find()
        self._chunk_rows = chunk_rows
        self._counted = counted
        self._is_cancelled = is_cancelled
        self._caller = caller

    def answers(
        self,
        job: Job,
        prompts: Sequence[Prompt],
        targets: Sequence[str] = (),
        rows: Sequence[int] = (),
    ) -> list[Answer]:
        """Return an answer for each prompt, in order; ids count from 0.

        `rows`: the prompts' row numbers, for random choices; default counted from 0.

        Raises RunError when the engine dies again and again, CancelledError after a stop.
        """
        size = self._chunk_rows
        numbers = rows or range(len(prompts))
        chunks = deque(
            _Chunk(n, prompts[n : n + size], targets[n : n + size], numbers[n : n + size])
            for n in range(0, len(prompts), size)
        )
        found: list[Answer | None] = [None] * len(prompts)
        suspects = self._all_at_once(job, chunks, found)
        if suspects:
            with self._alone:
                self._one_by_one(job, suspects, found)
        return [answer for answer in found if answer is not None]

    def _all_at_once(
        self, job: Job, chunks: deque[_Chunk], found: list[Answer | None]
    ) -> deque[_Chunk]:
        """Return the chunks that have no answer because the engine was lost."""
        import ray

        under_way: deque[tuple[_Chunk, Any]] = deque()
        lost: deque[_Chunk] = deque()
        while chunks or under_way:
            while chunks and len(under_way) < _IN_FLIGHT and not lost:
                chunk = chunks.popleft()
                with self._alone:  # Not while another part is looking for a bad prompt.
                    pass
                under_way.append((chunk, self._call(job, chunk)))
            chunk, call = under_way.popleft()
            try:
                self._keep(chunk, self._result(call), found)
            except ray.exceptions.RayActorError:
                chunk.losses += 1
                lost.append(chunk)
            if lost and not under_way:
                lost.extend(chunks)
                break
        return lost

    def _one_by_one(self, job: Job, suspects: deque[_Chunk], found: list[Answer | None]) -> None:
        import ray

        losses = 0
        while suspects:
            chunk = suspects.popleft()
            self._await_engine()
            try:
                self._keep(chunk, self._result(self._call(job, chunk)), found)
                continue
            except ray.exceptions.RayActorError as error:
                losses += 1
                chunk.losses += 1
                if losses > _MAX_LOSSES:
                    raise RunError(
                        f"The engine's process died {losses} times while it scored a few rows:"
                        f" {_first_line(error)}",
                        remedy="see the engine's log in the Ray Dashboard; a smaller"
                        " engine.batch_size or engine.max_model_len needs less memory",
                    ) from error
                if self._is_cancelled():  # Nobody wants the engine that would be started.
                    raise CancelledError from error
            if chunk.losses < 2:
                suspects.appendleft(chunk)
            elif len(chunk.prompts) > 1:
                suspects.extendleft(reversed(chunk.halves()))
            else:
                self._keep(chunk, [_died()], found)

    def _await_engine(self) -> None:
        """Find the engine, and wait until its process answers.

        While Ray starts it again each call fails at once, and its rows would look like the cause.
        """
        import ray

        until_s = time.monotonic() + patience_s(_RETURN_S)
        while True:
            self._engine = self._find()
            try:
                self._result(self._engine.facts.remote())
                return
            except ray.exceptions.RayActorError as error:
                if time.monotonic() > until_s:
                    raise RunError(
                        f"The engine's process died and did not come back: {_first_line(error)}",
                        remedy="`llmops status` shows whether the cluster is ready; `llmops retry`"
                        " scores the rows that are left",
                    ) from error
            if self._is_cancelled():  # Nobody wants the engine that would be started.
                raise CancelledError
            time.sleep(_LOOK_S)

    def _call(self, job: Job, chunk: _Chunk) -> Any:
        return self._engine.generate.remote(
            job, chunk.prompts, chunk.targets, chunk.rows, caller=self._caller
        )

    def _result(self, call: Any) -> Any:
        """Return what a call returns. Raises CancelledError after a stop."""
        import ray

        while not ray.wait([call], timeout=0.5)[0]:
            if self._is_cancelled():
                raise CancelledError
        return ray.get(call)

    def _keep(self, chunk: _Chunk, answers: Sequence[Answer], found: list[Answer | None]) -> None:
        if len(answers) < len(chunk.prompts):
            raise CancelledError  # The engine has dropped the call.
        for n, answer in enumerate(answers):
            answer.id = chunk.first + n
            found[answer.id] = answer
        self._counted(answers)


def _died() -> Answer:
    return Answer(0, finish="error", error="the engine's process died while it scored this row")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
