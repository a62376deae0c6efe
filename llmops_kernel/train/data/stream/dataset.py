"""The rows of one worker as the Trainer's dataset: a thread reads and tokenises them ahead."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from llmops_kernel.errors import DataError, LLMOpsError, TrainingError
from llmops_kernel.train.data.examples import IGNORED, Blank, Example, num_counted
from llmops_kernel.train.data.skipped import Fields
from llmops_kernel.train.data.stream.broken import named
from llmops_kernel.train.data.stream.mix import Mix, mixed
from llmops_kernel.train.data.stream.reader import Row, first_rows, read
from llmops_kernel.train.data.stream.walk import Located, Walk

_ENDLESS = 1 << 40
"""Length that the Trainer sees: when the training ends is decided by steps and by `is_finished`."""
_POLL_S = 0.5
_SAMPLED_PARTS = 8
_COUNTED_ROWS = 8
"""Rows of a part that are tokenised to see how many sequences a row becomes."""

Mark = Literal["cut", "empty"]
Tokenise = Callable[[Row, str], tuple[Sequence[Example], bool]]
"""Row and what errors call it -> its examples, several of a long text, and whether it was cut."""


@dataclass(frozen=True)
class Skipped:
    """A row that was left out."""

    position: int
    message: str


@dataclass
class Seen:
    """Counts of rows that were trained on cut, or without a token that counts."""

    num_cut: int = 0
    num_empty: int = 0


class StreamedRows:
    """Map-style, so that a resumed Trainer skips batches by their numbers, without the rows.

    The Trainer's sampler counts upwards, and Accelerate deals batches of `micro_batch_size`
    positions to the ranks in turn; each rank's positions, in order, are its own examples in order.
    After the last one come blank ones, so that ranks with less rows stay in step.
    """

    def __init__(
        self,
        walk: Walk | Mix,
        tokenise: Sequence[Tokenise],
        *,
        micro_batch_size: int,
        ahead: int,
        skip_broken: bool = False,
        blank_token: int = 0,
        fields: Fields | None = None,
    ) -> None:
        self._mix = mixed(walk)
        self._tokenise = tokenise
        """A tokenise function for each source."""
        self._micro = micro_batch_size
        self._ahead = ahead
        self._skip_broken = skip_broken
        self._blank = Blank([blank_token] * 2, [IGNORED] * 2)
        self._next = -1
        self._reader: _Reader | None = None
        self._is_exhausted = False
        self._resumed: tuple[int, Cursor] = (0, Cursor(0))
        self._ends = RowEnds()
        self._marks: deque[tuple[int, Mark]] = deque()
        self._broken: deque[Skipped] = deque()
        self.seen = Seen()
        self.fields = fields or Fields()
        """Notes on the fields of the rows that were read."""

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, position: int) -> Example:
        """Return the example at the Trainer's position. Raises what reading it has raised."""
        own_position = self._own(position)
        if self._reader is None or own_position != self._next:
            self._restart(own_position)
        self._next = own_position + 1
        if self._reader is None or self._is_exhausted:
            return self._blank
        example = self._reader.get()
        self._is_exhausted = example is None
        return self._blank if example is None else example

    def resume(self, num_examples: int, cursor: Cursor | None) -> None:
        """Begin after so many examples, which end at `cursor`; None: each row is one example."""
        self._resumed = num_examples, cursor or Cursor(num_examples)
        self._ends = RowEnds(*self._resumed)

    def sample(self, count: int) -> list[Example]:
        """Return the first rows of each source, the same on all workers, before any training.

        Raises DataError for a broken row, or if none of them can be used.
        """
        walks = self._mix.walks
        self.fields.uses.clear()  # Rows may have been counted for their lengths.
        examples = [
            example
            for source in range(len(walks))
            for example in self._sample(source, -(-count // len(walks)))
        ]
        if not examples and self._broken:
            raise DataError(
                f"The first {len(self._broken):,} rows are all broken: {self._broken[0].message}",
                remedy="check data.format, data.columns and the file",
            )
        return examples

    def _sample(self, source: int, count: int) -> list[Example]:
        plan = self._mix.walks[source].plan
        examples: list[Example] = []
        num_read = 0
        for part in plan.parts[:_SAMPLED_PARTS]:
            rows = read(plan.files, part)
            for number in range(min(len(rows), count - num_read)):
                located = Located(rows, number, part.index, position=0, source=source)
                try:
                    examples += self._examples(located)[0]
                    num_read += 1
                except LLMOpsError as error:
                    self._handle(error, located)
            if num_read >= count:
                break
        return examples

    def sequences_a_row(self, may_divide: Sequence[bool]) -> list[float]:
        """Return how many examples a row of each source is, by some rows from all over it.

        `may_divide`: for each source, whether it can be more than one.
        """
        return [
            self._sequences_a_row(source) if is_dividable else 1.0
            for source, is_dividable in enumerate(may_divide)
        ]

    def _sequences_a_row(self, source: int) -> float:
        plan = self._mix.walks[source].plan
        used = min(_SAMPLED_PARTS, len(plan.parts))
        rows = examples = 0
        for piece in range(used):
            part = plan.parts[piece * len(plan.parts) // used]
            part_rows = first_rows(plan.files, part, _COUNTED_ROWS)
            for number in range(min(len(part_rows), _COUNTED_ROWS)):
                with suppress(LLMOpsError):  # Who trains on the row reports it.
                    located = Located(part_rows, number, part.index, position=0, source=source)
                    examples += len(self._examples(located)[0])
                    rows += 1
        return examples / rows if rows else 1.0

    def close(self) -> None:
        """End the thread."""
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    def rows_at(self, num_examples: int) -> Cursor:
        """Return which rows this worker's first examples are, once they were handed out."""
        return self._ends.at(num_examples)

    def is_finished(self, num_examples: int) -> bool:
        """Return whether this worker's first examples are all that it has."""
        end = self._mix.end
        return end is not None and self.rows_at(num_examples).rows >= end

    def epoch_at(self, num_examples: int) -> float:
        """Return the epochs that this worker has trained, with their fraction."""
        return self._mix.epoch_at(self.rows_at(num_examples).rows)

    @property
    def walk(self) -> Mix:
        return self._mix

    def trained(self, num_rows: int) -> list[Skipped]:
        """Count what was noticed about rows before `num_rows`; return the newly skipped ones."""
        while self._marks and self._marks[0][0] < num_rows:
            _, mark = self._marks.popleft()
            if mark == "cut":
                self.seen.num_cut += 1
            else:
                self.seen.num_empty += 1
        skipped = []
        while self._broken and self._broken[0].position < num_rows:
            skipped.append(self._broken.popleft())
        return skipped

    def _own(self, position: int) -> int:
        batch, row = divmod(position, self._micro)
        turn, rank = divmod(batch, self._mix.world)
        if rank != self._mix.rank:
            raise TrainingError(
                f"The Trainer asked worker {self._mix.rank} for a batch of worker {rank}.",
                remedy="remove accelerator_config from training_arguments, or set"
                " data.streaming=false",
            )
        return turn * self._micro + row

    def _restart(self, position: int) -> None:
        self.close()
        self._marks.clear()
        self._broken.clear()
        self._mix.reset()
        self._is_exhausted = False
        first, cursor = self._resumed
        if position != first:  # Nothing says which rows were before it: each is one example.
            self.resume(position, None)
            first, cursor = self._resumed
        self._ends = RowEnds(first, cursor)
        self._reader = _Reader(
            lambda put_example: self._produce(first, cursor, put_example), self._ahead
        )

    def _produce(self, first: int, cursor: Cursor, put_example: Callable[[Example], None]) -> None:
        """Produce examples in the thread, each once it is known whether another follows."""
        pending: Example | None = None
        number, skipped = first, cursor.pieces
        for located in self._mix.rows(cursor.rows):
            if pending is not None:
                put_example(pending)
                pending = None
            examples = self._read(located)
            self._ends.add(number - skipped, len(examples))
            for example in examples[skipped:]:
                if pending is not None:
                    put_example(pending)
                pending = example
                number += 1
            skipped = 0
        if pending is not None:
            put_example(pending)

    def _read(self, located: Located) -> Sequence[Example]:
        try:
            examples, is_cut = self._examples(located)
        except LLMOpsError as error:
            self._handle(error, located)
            return [self._blank]
        if is_cut:
            self._marks.append((located.position, "cut"))
        if not any(map(num_counted, examples)):
            self._marks.append((located.position, "empty"))
        return examples

    def _examples(self, located: Located) -> tuple[Sequence[Example], bool]:
        return self._tokenise[located.source](located.decode(), located.label)

    def _handle(self, error: LLMOpsError, located: Located) -> None:
        """Keep a broken row, or raise the error with the row's place in its file."""
        message = named(error.message, located, [walk.plan for walk in self._mix.walks])
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
        item = self._queue.get()
        if isinstance(item, BaseException):
            raise item
        return item

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


# --- The rows of a worker's examples, where a long text is several of them ---


@dataclass(frozen=True)
class Cursor:
    """The end of a worker's first examples: a row counts as seen with the last of its pieces."""

    rows: int
    """Rows of which all pieces are among them."""
    pieces: int = 0
    """Pieces of the next row that are among them too."""


class RowEnds:
    """Follows the rows; a thread that reads ahead adds those that are several examples.

    Questions come in the order of training: what is before the last answer is forgotten.
    """

    def __init__(self, examples: int = 0, cursor: Cursor = Cursor(0)) -> None:
        self._example, self._row = examples - cursor.pieces, cursor.rows
        """The first example of a row, and the number of that row."""
        self._several: deque[tuple[int, int]] = deque()
        """First example and number of examples of the rows behind it that are several."""

    def add(self, first: int, count: int) -> None:
        """Add a row whose examples are `count`, the first of them at `first`; 1 need not be."""
        if count != 1:
            self._several.append((first, count))

    def at(self, examples: int) -> Cursor:
        """Return where so many examples end."""
        while self._several and sum(self._several[0]) <= examples:
            first, count = self._several.popleft()
            self._row += first - self._example + 1
            self._example = first + count
        following = self._several[0][0] if self._several else examples
        if following < examples:
            return Cursor(self._row + following - self._example, examples - following)
        return Cursor(self._row + max(0, examples - self._example))
