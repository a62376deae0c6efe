"""The rows of one worker as the Trainer's dataset: a thread reads and tokenises them ahead."""

from __future__ import annotations

import queue
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from llmops_kernel.errors import DataError, LLMOpsError, TrainingError
from llmops_kernel.train.data.examples import IGNORED, Blank, Example, num_counted
from llmops_kernel.train.data.stream.reader import Row, place, read
from llmops_kernel.train.data.stream.walk import Located, Span, Walk

_ENDLESS = 1 << 40
"""Length that the Trainer sees: when the training ends is decided by steps and by `is_finished`."""
_POLL_S = 0.5
_SAMPLED_PARTS = 8

Mark = Literal["cut", "empty"]
Tokenise = Callable[[Row, str], tuple[Example, bool]]
"""Row and what errors call it -> its tokens, and whether they were cut to `max_length`."""


@dataclass(frozen=True)
class Skipped:
    """A row that was left out."""

    position: int
    message: str


@dataclass
class Seen:
    """What was noticed about the rows that were trained on."""

    num_cut: int = 0
    num_empty: int = 0


class StreamedRows:
    """Map-style, so that a resumed Trainer skips batches by their numbers, without the rows.

    The Trainer's sampler counts upwards, and Accelerate deals batches of `micro_batch_size`
    positions to the ranks in turn; each rank's positions, in order, are its own rows in order.
    After the last row come blank ones, so that ranks with less rows stay in step.
    """

    def __init__(
        self,
        walk: Walk,
        tokenise: Tokenise,
        *,
        micro_batch_size: int,
        ahead: int,
        skip_broken: bool = False,
        blank_token: int = 0,
    ) -> None:
        self._walk = walk
        self._tokenise = tokenise
        self._micro = micro_batch_size
        self._ahead = ahead
        self._skip_broken = skip_broken
        self._blank = Blank([blank_token] * 2, [IGNORED] * 2)
        self._next = -1
        self._reader: _Reader | None = None
        self._marks: deque[tuple[int, Mark]] = deque()
        self._broken: deque[Skipped] = deque()
        self.seen = Seen()

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, position: int) -> Example:
        """Return the row at the Trainer's position. Raises what reading it has raised."""
        own = self._own(position)
        if self._reader is None or own != self._next:
            self._restart(own)
        self._next = own + 1
        if self.is_finished(own) or self._reader is None:
            return self._blank
        found = self._reader.get()
        return self._blank if found is None else found

    def sample(self, count: int) -> list[Example]:
        """Return the first rows of the data, the same on all workers, before any training.

        Raises DataError for a broken row, or if none of them can be used.
        """
        plan = self._walk.plan
        found: list[Example] = []
        for part in plan.parts[:_SAMPLED_PARTS]:
            rows = read(plan.files, part)
            for number in range(min(len(rows), count - len(found))):
                located = Located(rows, number, part.index, position=0)
                try:
                    found.append(self._tokenise(located.decode(), located.label)[0])
                except LLMOpsError as error:
                    self._handle(error, located)
            if len(found) >= count:
                break
        if not found and self._broken:
            raise DataError(
                f"The first {len(self._broken):,} rows are all broken: {self._broken[0].message}",
                remedy="check data.format, data.columns and the file",
            )
        return found

    def close(self) -> None:
        """End the thread."""
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    def is_finished(self, num_rows: int) -> bool:
        """Return whether this worker's first `num_rows` rows are all that it has."""
        return self._walk.end is not None and num_rows >= self._walk.end

    def epoch_at(self, num_rows: int) -> float:
        """Return the epochs that this worker has trained, with their fraction."""
        span = self.span_at(max(0, num_rows - 1))
        if span is None or not span.count:
            return 0.0
        done = min(1.0, (num_rows - span.start) / span.count)
        begin, end = span.epoch_share
        return span.window.epoch + begin + (end - begin) * done

    def span_at(self, position: int) -> Span | None:
        spans = self._walk.spans
        found = bisect_right(spans, position, key=lambda span: span.start) - 1
        return spans[found] if found >= 0 else None

    @property
    def walk(self) -> Walk:
        return self._walk

    def trained(self, num_rows: int) -> list[Skipped]:
        """Count what was noticed about rows before `num_rows`; return the newly skipped ones."""
        while self._marks and self._marks[0][0] < num_rows:
            _, mark = self._marks.popleft()
            if mark == "cut":
                self.seen.num_cut += 1
            else:
                self.seen.num_empty += 1
        found = []
        while self._broken and self._broken[0].position < num_rows:
            found.append(self._broken.popleft())
        return found

    def _own(self, position: int) -> int:
        batch, row = divmod(position, self._micro)
        turn, rank = divmod(batch, self._walk.world)
        if rank != self._walk.rank:
            raise TrainingError(
                f"The Trainer asked worker {self._walk.rank} for a batch of worker {rank}.",
                remedy="remove accelerator_config from training_arguments, or set"
                " data.streaming=false",
            )
        return turn * self._micro + row

    def _restart(self, own: int) -> None:
        self.close()
        self._marks.clear()
        self._broken.clear()
        self._walk.reset()
        self._reader = _Reader(lambda put: self._produce(own, put), self._ahead)

    def _produce(self, start: int, put: Callable[[Example], None]) -> None:
        """Runs in the thread. A row is handed on once it is known whether another follows."""
        held: Example | None = None
        for located in self._walk.rows(start):
            if held is not None:
                put(held)
            held = self._example(located)
        if held is not None:
            put(held)

    def _example(self, located: Located) -> Example:
        try:
            example, is_cut = self._tokenise(located.decode(), located.label)
        except LLMOpsError as error:
            self._handle(error, located)
            return self._blank
        if is_cut:
            self._marks.append((located.position, "cut"))
        if not num_counted(example):
            self._marks.append((located.position, "empty"))
        return example

    def _handle(self, error: LLMOpsError, located: Located) -> None:
        """Keep a broken row, or raise the error with the row's place in its file."""
        plan = self._walk.plan
        where = place(plan.files, plan.parts[located.part], located.number)
        message = error.message.replace(f"Row {located.label}", where)
        message = message.replace(f"row {located.label}", where)
        if not self._skip_broken or not isinstance(error, DataError):
            raise type(error)(message, remedy=error.remedy) from error
        self._broken.append(Skipped(located.position, message))


class _Reader:
    """A thread that produces rows, as many as fit in its queue; errors reach the one who reads."""

    def __init__(self, produce: Callable[[Callable[[Example], None]], None], ahead: int) -> None:
        self._queue: queue.Queue[Example | BaseException | None] = queue.Queue(ahead)
        self._stopped = threading.Event()
        self._produce = produce
        self._thread = threading.Thread(target=self._run, name="llmops-rows", daemon=True)
        self._thread.start()

    def get(self) -> Example | None:
        """Return the next row, None after the last one. Raises what the thread has raised."""
        found = self._queue.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._produce(self._put)
        except _StoppedError:
            return
        except BaseException as error:
            self._offer(error)
        else:
            self._offer(None)

    def _put(self, example: Example) -> None:
        self._offer(example)
        if self._stopped.is_set():
            raise _StoppedError

    def _offer(self, item: Example | BaseException | None) -> None:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=_POLL_S)
            except queue.Full:
                continue
            return


class _StoppedError(Exception):
    pass
