"""The rows of several sources, in turn: one worker's way through all of the data."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING

from llmops_kernel.train.data.stream.order import WINDOW_BYTES
from llmops_kernel.train.data.stream.plan import StreamPlan
from llmops_kernel.train.data.stream.reader import PartRows
from llmops_kernel.train.data.stream.walk import Located, Span, Walk, too_few

if TYPE_CHECKING:
    from llmops_kernel.train.data.stream.walk import Span


_SEEDS_APART = 1_000_003
"""Between two sources, so that they are not shuffled alike."""


def source_seed(seed: int, source: int) -> int:
    """Return the seed of a source; the first one has that of the run."""
    return seed + _SEEDS_APART * source


def window_bytes(plans: Sequence[StreamPlan], weights: Sequence[float]) -> list[int]:
    """Divide what a worker holds in memory among the sources, by their bytes in an epoch."""
    sizes = [
        weight * sum(part.num_bytes for part in plan.parts)
        for plan, weight in zip(plans, weights, strict=True)
    ]
    total = sum(sizes) or 1
    return [max(1, round(WINDOW_BYTES * size / total)) for size in sizes]


@dataclass
class Mix:
    """A worker's walk through all sources. For a single source it is the walk through that."""

    walks: Sequence[Walk]
    seed: int = 0
    end: int | None = None
    """Rows of the worker in all epochs; None until the last window is known."""
    _epoch_ends: list[int] = field(default_factory=list)
    """Rows of the worker up to the end of each epoch that is over."""

    def __post_init__(self) -> None:
        self.reset()

    @property
    def rank(self) -> int:
        return self.walks[0].rank

    @property
    def world(self) -> int:
        return self.walks[0].world

    @property
    def num_epochs(self) -> int | None:
        return self.walks[0].num_epochs

    @cached_property
    def plan(self) -> StreamPlan:
        """Return the plans of all sources in one; each source has parts of its own."""
        plans = [walk.plan for walk in self.walks]
        if len(plans) == 1:
            return plans[0]
        files = (
            replace(file, name=f"{number + 1}, {plan.source}: {file.name}")
            for number, plan in enumerate(plans)
            for file in plan.files
        )
        return StreamPlan(
            source=", ".join(plan.source for plan in plans),
            files=tuple(files),
            parts=(),
            fingerprint="-".join(plan.fingerprint for plan in plans),
        )

    def reset(self) -> None:
        """Forget where the rows were, before walking again."""
        for walk in self.walks:
            walk.reset()
        self.end, self._epoch_ends = None, []
        self._tracker = Tracker(
            lambda: [walk.spans for walk in self.walks], lambda: self._epoch_ends, self._keys
        )

    def rows(self, start: int = 0) -> Iterator[Located]:
        """Yield the worker's rows from a position on. Nothing before it is decoded.

        Raises DataError.
        """
        if len(self.walks) == 1:
            yield from self.walks[0].rows(start)
            self.end = self.walks[0].end
            return
        epoch = position = 0
        while self.num_epochs is None or epoch < self.num_epochs:
            before = position
            if start > position and (skipped := self._skipped(epoch, start - position)):
                position += skipped
            else:
                for located in self._epoch(epoch, position, start):
                    position += 1
                    if located is not None:
                        yield located
            if position == before:
                raise too_few(self.plan.source, self.rank, self.world)
            self._epoch_ends.append(position)
            epoch += 1
        self.end = position

    def epoch_at(self, num_rows: int) -> float:
        """Return the epochs of the first rows, which were handed out, with their fraction."""
        if len(self.walks) == 1:
            return self.walks[0].epoch_at(num_rows)
        return self._tracker.epoch_at(num_rows if self.end is None else min(num_rows, self.end))

    def _keys(self, epoch: int) -> Key:
        first = self.walks[0]
        return keys(
            epoch,
            seed=self.seed,
            rank=self.rank,
            num_sources=len(self.walks),
            shuffle=first.shuffle,
        )

    def _skipped(self, epoch: int, most: int) -> int | None:
        """Pass over an epoch of at most so many rows as a whole, and return its rows.

        None if it has more, or rows that are yet to be counted.
        """
        windows = [walk.known_windows(epoch) for walk in self.walks]
        counted_windows = [
            source_windows for source_windows in windows if source_windows is not None
        ]
        count = sum(rows for source_windows in counted_windows for _, _, rows in source_windows)
        if len(counted_windows) < len(windows) or count > most:
            return None
        for walk, source_windows in zip(self.walks, counted_windows, strict=True):
            for window, share, _ in source_windows:
                walk.opened(window, share)
        return count

    def _epoch(self, epoch: int, position: int, start: int) -> Iterator[Located | None]:
        """Yield the rows of an epoch in turn; None for each that is before `start`."""
        cursors = [_SourceCursor(walk, number, epoch) for number, walk in enumerate(self.walks)]
        turns = Turns(self._keys(epoch))
        for number, cursor in enumerate(cursors):
            if cursor.span is not None:
                turns.enter(number, cursor.span, 0)
        while (turn := turns.take()) is not None:
            cursor = cursors[turn[1]]
            yield cursor.row(position) if position >= start else None
            position += 1
            if (span := cursor.advance()) is not None:
                turns.enter(turn[1], span, cursor.next)


class _SourceCursor:
    """The rows of one source in an epoch, window by window."""

    def __init__(self, walk: Walk, source: int, epoch: int) -> None:
        self._walk, self._source = walk, source
        self._windows = walk.windows_of(epoch)
        self._loaded: list[PartRows] | None = None
        self._order: Sequence[int] | None = None
        self.next = 0
        """Number of the next row in its window."""
        self.span: Span | None = None
        self._open()

    def advance(self) -> Span | None:
        """Go to the next row; return its window, None after the last one."""
        self.next += 1
        if self.span is not None and self.next >= self.span.count:
            self._open()
        return self.span

    def row(self, position: int) -> Located:
        """Return the row that is next, which is at a position among those of all sources."""
        span = self.span
        assert span is not None
        if self._loaded is None:
            self._loaded = self._walk.load(span.window)
        if self._order is None:
            self._order = self._walk.chosen(span)
        piece, number = span.place(self._order[self.next])
        part = span.window.pieces[piece].part
        return Located(self._loaded[piece], number, part, position, self._source)

    def _open(self) -> None:
        self.span, self.next = None, 0
        self._loaded = self._order = None  # Before the next window is read.
        for window, share in self._windows:
            span, loaded = self._walk.opened(window, share)
            if span.count:
                self.span, self._loaded = span, loaded
                return


def mixed(walk: Walk | Mix) -> Mix:
    """Return the way through all of the data, if it is only one source too."""
    return walk if isinstance(walk, Mix) else Mix((walk,), walk.seed)


# --- Turns of several sources ---
# Each advances through its epoch as far as the others.
# A row's key is how far its source has come with it, from 0 to 1, and the smallest key is next.
# So each stretch of an epoch has rows of all sources in proportion, and the order depends on
# nothing but the windows that were opened: a resumed run comes to the same.


Key = Callable[[int, "Span", int], float]
"""Source, window, row in it -> key."""


def keys(epoch: int, *, seed: int, rank: int, num_sources: int, shuffle: bool) -> Key:
    """Return the keys of an epoch. Without `shuffle` one source follows another.

    Each source is shifted by less than one row, so that the only row of a source need not be the
    first of its epoch on each worker.
    """
    chance = Random(f"{seed}/{epoch}/{rank}/turns")
    shifts = [chance.random() if shuffle else 0.0 for _ in range(num_sources)]

    def key(source: int, span: Span, row: int) -> float:
        begin, end = span.epoch_share
        done = begin + (end - begin) * (row + shifts[source]) / span.count
        return done if shuffle else (source + done) / num_sources

    return key


class Turns:
    """The sources that have rows left in an epoch."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._waiting: list[tuple[float, int]] = []

    def enter(self, source: int, span: Span, row: int) -> None:
        """Add a source with its next row."""
        heapq.heappush(self._waiting, (self._key(source, span, row), source))

    def take(self) -> tuple[float, int] | None:
        """Return key and source of the next row; None at the end of the epoch."""
        return heapq.heappop(self._waiting) if self._waiting else None


class Tracker:
    """Says how many epochs the first rows of a worker are, after they were read.

    Reads the spans that a thread adds to while it reads ahead: of rows that were handed out all
    windows are known.
    """

    def __init__(
        self,
        spans: Callable[[], Sequence[Sequence[Span]]],
        epoch_ends: Callable[[], Sequence[int]],
        keys_of: Callable[[int], Key],
    ) -> None:
        self._spans, self._epoch_ends, self._keys_of = spans, epoch_ends, keys_of
        self._begin()

    def epoch_at(self, num_rows: int) -> float:
        """Return the epochs that are done after so many rows, with their fraction."""
        if not num_rows:
            return 0.0
        ends = self._epoch_ends()
        ended = bisect_right(ends, num_rows)
        if ended and ends[ended - 1] == num_rows:
            return float(ended)
        self._go_to(num_rows)
        return self._epoch + min(1.0, self._last)

    def _begin(self) -> None:
        num = len(self._spans())
        self._position = self._epoch = 0
        self._last = 0.0
        self._positions = [(0, 0)] * num
        """Window of each source, and rows that were taken of it."""
        self._entering: list[int] = list(range(num))
        self._turns = Turns(self._keys_of(0))

    def _go_to(self, num_rows: int) -> None:
        if num_rows < self._position:
            self._begin()
        empty = 0
        while self._position < num_rows and empty < 2:
            before = self._position
            if not self._skip_epoch(num_rows):
                self._step()
            empty = 0 if self._position > before else empty + 1

    def _skip_epoch(self, num_rows: int) -> bool:
        """Go to the end of an epoch that is over, without its rows one by one."""
        ends = self._epoch_ends()
        if self._epoch >= len(ends) or ends[self._epoch] > num_rows:
            return False
        self._position = ends[self._epoch]
        self._next_epoch()
        return True

    def _next_epoch(self) -> None:
        self._epoch += 1
        self._last = 0.0
        for source, spans in enumerate(self._spans()):
            number = self._positions[source][0]
            while number < len(spans) and spans[number].window.epoch < self._epoch:
                number += 1
            self._positions[source] = (number, 0)
        self._entering = list(range(len(self._positions)))
        self._turns = Turns(self._keys_of(self._epoch))

    def _step(self) -> None:
        for source in self._entering:
            self._enter(source)
        self._entering.clear()
        turn = self._turns.take()
        if turn is None:
            self._next_epoch()
            return
        self._last, source = turn
        number, row = self._positions[source]
        self._positions[source] = (number, row + 1)
        self._position += 1
        # Not yet: its next window may not be open.
        self._entering.append(source)

    def _enter(self, source: int) -> None:
        number, row = self._positions[source]
        spans = self._spans()[source]
        while number < len(spans) and row >= spans[number].count:
            if number + 1 == len(spans) or spans[number + 1].window.epoch > self._epoch:
                return  # It has no more rows in this epoch.
            number, row = number + 1, 0
        if number < len(spans) and spans[number].window.epoch == self._epoch:
            self._positions[source] = (number, row)
            self._turns.enter(source, spans[number], row)
