"""Whose turn it is among several sources: each advances through its epoch as far as the others.

A row's key is how far its source has come with it, from 0 to 1, and the smallest key is next. So
each stretch of an epoch has rows of all sources in proportion, and the order depends on nothing but
the windows that were opened: a resumed run comes to the same.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmops_kernel.train.data.stream.walk import Span

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
    """Says of the first rows of a worker how many are of each source, after they were read.

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

    def split(self, num_rows: int) -> tuple[int, ...]:
        """Return how many of the worker's first `num_rows` rows are of each source."""
        self._go_to(num_rows)
        return tuple(self._count(source) for source in range(len(self._at)))

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
        self._at = [(0, 0)] * num
        """Window of each source, and rows that were taken of it."""
        self._entering: list[int] = list(range(num))
        self._turns = Turns(self._keys_of(0))

    def _count(self, source: int) -> int:
        number, row = self._at[source]
        spans = self._spans()[source]
        return spans[number].start + row if number < len(spans) else self._end_of(source)

    def _end_of(self, source: int) -> int:
        spans = self._spans()[source]
        return spans[-1].end if spans else 0

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
            number = self._at[source][0]
            while number < len(spans) and spans[number].window.epoch < self._epoch:
                number += 1
            self._at[source] = (number, 0)
        self._entering = list(range(len(self._at)))
        self._turns = Turns(self._keys_of(self._epoch))

    def _step(self) -> None:
        for source in self._entering:
            self._enter(source)
        self._entering.clear()
        taken = self._turns.take()
        if taken is None:
            self._next_epoch()
            return
        self._last, source = taken
        number, row = self._at[source]
        self._at[source] = (number, row + 1)
        self._position += 1
        # Not yet: its next window may not be open.
        self._entering.append(source)

    def _enter(self, source: int) -> None:
        number, row = self._at[source]
        spans = self._spans()[source]
        while number < len(spans) and row >= spans[number].count:
            if number + 1 == len(spans) or spans[number + 1].window.epoch > self._epoch:
                return  # It has no more rows in this epoch.
            number, row = number + 1, 0
        if number < len(spans) and spans[number].window.epoch == self._epoch:
            self._at[source] = (number, row)
            self._turns.enter(source, spans[number], row)
