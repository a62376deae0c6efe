"""An engine that answers at once, for tests of all that is around an engine.

A prompt's text says what happens to it: `[fail]` gets an error, `[crash]` kills the process as the
kernel's OOM killer would, `[break]` makes `step` raise, `[hang]` has no answer until it is
cancelled, and `[threads]` is answered with the threads that libraries were given. Each can happen
once: `[crash:/tmp/x]` crashes only while there is no file /tmp/x, and makes it.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from llmops_kernel.errors import ModelError
from llmops_kernel.score.engines.protocol import Answer, EngineSpec, EngineStats, Job, Request

_MARKER = re.compile(r"\[(fail|crash|break|hang|threads)(?::([^\]]+))?\]")


class InstantEngine:
    """Answers a prompt with itself.

    Options: `load_s`, seconds to load; `step_s`, of a step; `only`, a file: one engine makes it and
    loads, all later ones fail; `refuses`: the error of each answer.
    """

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self._step_s = float(spec.options.get("step_s", 0.0))
        self._queue: deque[tuple[Request, Job]] = deque()
        self._hanging: set[int] = set()
        self._threads = os.environ.get("OMP_NUM_THREADS", "")
        self._refuses = str(spec.options.get("refuses", ""))
        time.sleep(float(spec.options.get("load_s", 0.0)))
        if "only" in spec.options:
            _be_the_only_one(Path(spec.options["only"]))

    def add(self, request: Request, job: Job) -> None:
        self._queue.append((request, job))

    def step(self) -> list[Answer]:
        if self._step_s or not self._queue:
            time.sleep(self._step_s or 0.001 * bool(self._hanging))
        size = min(self.spec.batch_size, len(self._queue))
        batch = [self._queue.popleft() for _ in range(size)]
        return [answer for request, job in batch for answer in self._answers(request, job)]

    def cancel(self, ids: Sequence[int]) -> None:
        gone = set(ids)
        self._hanging -= gone
        self._queue = deque(item for item in self._queue if item[0].id not in gone)

    @property
    def unfinished(self) -> int:
        return len(self._queue) + len(self._hanging)

    def stats(self) -> EngineStats:
        return EngineStats(running=len(self._hanging), waiting=len(self._queue), kv_cache=0.0)

    def close(self) -> None:
        self._queue.clear()
        self._hanging.clear()

    def _answers(self, request: Request, job: Job) -> Iterator[Answer]:
        text = prompt_text(request)
        action = _action(text) if "[" in text else ""
        if self._refuses:
            yield Answer(id=request.id, finish="error", error=self._refuses)
            return
        if action == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "break":
            raise RuntimeError("the engine is broken, as the prompt asked for")
        if action == "hang":
            self._hanging.add(request.id)
        elif action == "fail":
            message = "this row fails, as its prompt asked for"
            yield Answer(id=request.id, finish="error", error=message)
        else:
            threads = self._threads if action == "threads" else ""
            yield from _finished(request, job, threads or text)


def _be_the_only_one(mark: Path) -> None:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        raise ModelError(
            "the engine does not fit beside the other one", remedy="use fewer replicas"
        ) from None


def prompt_text(request: Request) -> str:
    """The prompt, or the last message of a chat."""
    return request.prompt if isinstance(request.prompt, str) else request.prompt[-1]["content"]


def _action(text: str) -> str:
    match = _MARKER.search(text)
    if match is None:
        return ""
    action, once = match.groups()
    if once:
        try:
            Path(once).touch(exist_ok=False)
        except FileExistsError:
            return ""
    return action


def _finished(request: Request, job: Job, text: str) -> Iterator[Answer]:
    words = text.split()
    answer = Answer(id=request.id, prompt_tokens=len(words))
    if job.task == "embed":
        answer.embedding = [1.0, 0.0, 0.0]
    elif job.task == "logprob":
        scored = (request.target or text).split()
        answer.output_tokens, answer.logprob = len(scored), -math.log(2) * len(scored)
    elif job.task == "classify":
        answer.scores = _scores(job, text)
        answer.text = max(answer.scores, key=answer.scores.__getitem__)
        answer.output_tokens = 1
    elif job.task == "json":
        answer.text, answer.output_tokens = "{}", 1
    else:
        kept = words[: job.max_tokens]
        if job.stream:
            for count in range(1, len(kept)):
                part = " ".join(kept[:count])
                yield Answer(id=request.id, text=part, output_tokens=count, is_final=False)
        answer.text, answer.output_tokens = " ".join(kept), len(kept)
        answer.finish = "stop" if len(kept) == len(words) else "length"
        answer.logprob = 0.0
    yield answer


def _scores(job: Job, text: str) -> dict[str, float]:
    """Most of the probability for a choice in the prompt, else for one by the prompt's hash."""
    named = [choice for choice in job.choices if choice in text]
    number = int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)
    best = named[0] if named else job.choices[number % len(job.choices)]
    rest = 0.2 / (len(job.choices) - 1)
    return {choice: 0.8 if choice == best else rest for choice in job.choices}
