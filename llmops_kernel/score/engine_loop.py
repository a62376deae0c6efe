"""Runs one engine in a thread for many callers: their requests are worked on together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from llmops_kernel.score.engines.protocol import Answer, Engine, EngineStats, Job, Prompt, Request

_POLL_S = 0.5


@dataclass
class _Batch:
    """The requests of one call."""

    first_id: int
    job: Job
    prompts: Sequence[Prompt]
    targets: Sequence[str]
    rows: Sequence[int]
    answers: list[Answer | None] = field(default_factory=list)
    remaining: int = 0
    counts: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Rows that have an answer, their prompt tokens and output tokens."""
    done: threading.Event = field(default_factory=threading.Event)
    parts: SimpleQueue[Answer | None] | None = None
    """Parts of a streamed call: partial answers, then None."""
    was_cancelled: bool = False
    caller: str = ""

    def finish(self) -> None:
        self.done.set()
        if self.parts is not None:
            self.parts.put(None)


class EngineLoop:
    """A thread that loads an engine and makes all its steps; any number of threads wait for it.

    Loading and steps are in one thread because OpenMP keeps a pool of threads for each thread that
    has computed: with two pools it has more threads than cores, no longer spins between parallel
    regions (libgomp, GOMP_SPINCOUNT), and vLLM makes a quarter fewer tokens on CPUs.
    """

    engine: Engine

    def __init__(
        self, load: Callable[[], Engine], *, broken: Callable[[BaseException], None]
    ) -> None:
        """Wait until `load` has returned the engine, in the loop's thread; raise what it raises.

        `broken` is called in the thread when the engine raises; no answer comes after that.
        """
        self._broken = broken
        self._change = threading.Condition()
        self._inbox: list[_Batch] = []
        self._cancelled: list[_Batch] = []
        self._batches: dict[int, _Batch] = {}
        self._dropped: set[str] = set()
        """Callers that no longer wait: what they have sent already may still arrive."""
        self._streams: dict[str, _Batch] = {}
        """Streamed calls by the name that the caller gave them."""
        self._next_id = 0
        self._closing = False
        self.used_s = time.monotonic()
        """When the engine last had work."""
        self.prompt_tokens = self.output_tokens = self.requests = 0
        """Counted since the engine was loaded."""
        loaded: Future[Engine] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(load, loaded), daemon=True, name="llmops-engine"
        )
        self._thread.start()
        self.engine = loaded.result()

    @property
    def idle_s(self) -> float:
        """Return seconds since the last work; 0 while there is some."""
        return 0.0 if self._batches or self._inbox else time.monotonic() - self.used_s

    def stats(self) -> EngineStats:
        return self.engine.stats()

    def generate(
        self,
        job: Job,
        prompts: Sequence[Prompt],
        targets: Sequence[str] = (),
        rows: Sequence[int] = (),
        *,
        caller: str = "",
    ) -> list[Answer]:
        """Wait for all answers; they are in the order of the prompts, ids count from 0.

        `rows`: the prompts' row numbers; default counted from 0. After `drop(caller)` the answers
        that are not there yet are missing.
        """
        batch = self._submit(job, prompts, targets, rows, caller=caller)
        batch.done.wait()
        return [answer for answer in batch.answers if answer is not None]

    def stream(self, job: Job, prompt: Prompt, *, key: str = "") -> Iterator[Answer]:
        """Yield the answer so far each time that it has grown; the last one is final.

        After `cancel(key)` there is no further one.
        """
        batch = self._submit(job, [prompt], parts=SimpleQueue())
        assert batch.parts is not None
        if key:
            self._streams[key] = batch
        try:
            while (answer := batch.parts.get()) is not None:
                yield answer
        finally:
            self._streams.pop(key, None)
            if not batch.done.is_set():
                self._cancel(batch)

    def cancel(self, key: str) -> bool:
        """End the streamed call of that key; return False if there is none."""
        batch = self._streams.get(key)
        if batch is not None:
            self._cancel(batch)
        return batch is not None

    def drop(self, caller: str) -> None:
        """Cancel all calls of that caller, also those that arrive later."""
        with self._change:
            self._dropped.add(caller)
            self._change.notify()

    def close(self) -> None:
        with self._change:
            self._closing = True
            self._change.notify()
        self._thread.join(10.0)

    def _submit(
        self,
        job: Job,
        prompts: Sequence[Prompt],
        targets: Sequence[str] = (),
        rows: Sequence[int] = (),
        *,
        parts: SimpleQueue[Answer | None] | None = None,
        caller: str = "",
    ) -> _Batch:
        count = len(prompts)
        with self._change:
            numbers = rows or range(count)
            batch = _Batch(
                self._next_id, job, prompts, targets, numbers, parts=parts, caller=caller
            )
            batch.answers, batch.remaining = [None] * count, count
            self._next_id += count
            if count:
                self._inbox.append(batch)
                self._change.notify()
        if not count:
            batch.finish()
        return batch

    def _cancel(self, batch: _Batch) -> None:
        with self._change:
            self._cancelled.append(batch)
            self._change.notify()

    def _run(self, load: Callable[[], Engine], loaded: Future[Engine]) -> None:
        try:
            self.engine = load()
        except BaseException as error:
            loaded.set_exception(error)
            return
        loaded.set_result(self.engine)
        try:
            while self._turn():
                pass
            self.engine.close()
        except BaseException as error:
            self._broken(error)

    def _turn(self) -> bool:
        with self._change:
            while not (self._inbox or self._cancelled or self._closing or self.engine.unfinished):
                self._change.wait(_POLL_S)
            arrived, self._inbox = self._inbox, []
            cancelled, self._cancelled = self._cancelled, []
            closing = self._closing
        for batch in arrived:
            if batch.caller not in self._dropped:
                self._add(batch)
        for batch in (*cancelled, *self._of_dropped(arrived)):
            self._forget(batch)
        if self.engine.unfinished:
            self.used_s = time.monotonic()
            for answer in self.engine.step():
                self._take(answer)
            self.used_s = time.monotonic()
        return not closing

    def _of_dropped(self, arrived: Sequence[_Batch]) -> list[_Batch]:
        """Return the calls, each once, that nobody waits for."""
        if not self._dropped:
            return []
        batches = {batch.first_id: batch for batch in (*arrived, *self._batches.values())}
        return [batch for batch in batches.values() if batch.caller in self._dropped]

    def _add(self, batch: _Batch) -> None:
        targets = batch.targets
        for n, prompt in enumerate(batch.prompts):
            number = batch.first_id + n
            self._batches[number] = batch
            target = targets[n] if targets else ""
            request = Request(number, prompt, target, batch.rows[n], call=batch.first_id)
            self.engine.add(request, batch.job)
        self.used_s = time.monotonic()

    def _take(self, answer: Answer) -> None:
        batch = self._batches.get(answer.id)
        if batch is None:
            return
        number = answer.id
        answer.id -= batch.first_id
        if batch.parts is not None:
            batch.parts.put(answer)
        if not answer.is_final:
            return
        del self._batches[number]
        self.requests += 1
        self.prompt_tokens += answer.prompt_tokens
        self.output_tokens += answer.output_tokens
        batch.answers[answer.id] = answer
        for n, amount in enumerate((1, answer.prompt_tokens, answer.output_tokens)):
            batch.counts[n] += amount
        batch.remaining -= 1
        if not batch.remaining:
            batch.finish()

    def _forget(self, batch: _Batch) -> None:
        ids = range(batch.first_id, batch.first_id + len(batch.prompts))
        open_ids = [number for number in ids if self._batches.pop(number, None) is not None]
        if open_ids:
            self.engine.cancel(open_ids)
        batch.was_cancelled = True
        batch.finish()

    def facts(self) -> dict[str, Any]:
        """Return counts since the engine was loaded, and its load."""
        stats = self.stats()
        return {
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "running": stats.running,
            "waiting": stats.waiting,
            "kv_cache": stats.kv_cache,
            "prefix_hits": stats.prefix_hits,
            "idle_s": self.idle_s,
            "under_way": self._under_way(),
        }

    def _under_way(self) -> dict[str, list[int]]:
        """Return by caller the counts of its calls that have no result yet: some answers may be
        there for minutes before the last.
        """
        counts: dict[str, list[int]] = {}
        for batch in {id(waiting): waiting for waiting in list(self._batches.values())}.values():
            before = counts.get(batch.caller, [0, 0, 0])
            counts[batch.caller] = [a + b for a, b in zip(before, batch.counts, strict=True)]
        return counts
