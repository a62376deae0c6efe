"""Rows of several sources in memory, each source with its weight. Pure.

Each source goes round one order of its own: an epoch continues where the one before has stopped.
So each row is seen `weight` times an epoch; where that is not a whole number, as often as any
other row of its source, and never twice before all others were seen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from random import Random
from typing import Generic, TypeVar, overload

T = TypeVar("T")


def exact(weight: float) -> Fraction:
    """Return the weight as it was written: 0.3 is 3/10, so that ten epochs are three rounds."""
    return Fraction(repr(float(weight)))


def draws(size: int, weight: float) -> int:
    """Return how many rows of a source are seen in one epoch: the same number in each."""
    return max(1, round(exact(weight) * size)) if size else 0


class MixedRows(Sequence[T], Generic[T]):
    """The rows of an epoch, source after source: the Trainer shuffles them together.

    Has the same length in each epoch. Which rows these are changes with `set_epoch`, if a weight
    is not a whole number; it depends on the seed and on nothing else.
    """

    def __init__(
        self,
        sources: Sequence[Sequence[T]],
        weights: Sequence[float],
        *,
        seed: int,
        shuffle: bool = True,
    ) -> None:
        self._sources = sources
        self._counts = [draws(len(s), w) for s, w in zip(sources, weights, strict=True)]
        self._ends = list(accumulate(self._counts))
        self._orders = [
            _order(len(source), seed=f"{seed}/draw/{number}", shuffle=shuffle and count % size > 0)
            for number, (source, count) in enumerate(zip(sources, self._counts, strict=True))
            for size in [len(source) or 1]
        ]
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the rows of an epoch, from 0."""
        self._epoch = epoch

    @property
    def counts(self) -> list[int]:
        """Return rows of each source in an epoch."""
        return list(self._counts)

    def place(self, index: int) -> tuple[int, int]:
        """Return the source of a row of this epoch, and the row's number in it."""
        source = bisect_right(self._ends, index)
        count, order = self._counts[source], self._orders[source]
        within = index - (self._ends[source] - count)
        return source, order[(self._epoch * count + within) % len(order)]

    def of_all_sources(self) -> list[T]:
        """Return each row of each source once, in their order."""
        return [row for source in self._sources for row in source]

    def spread(self, count: int) -> list[T]:
        """Return at most `count` rows from all over the epoch."""
        size = len(self)
        return [self[n * size // min(count, size)] for n in range(min(count, size))]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(index)
        source, row = self.place(number)
        return self._sources[source][row]

    def __iter__(self) -> Iterator[T]:
        return (self[number] for number in range(len(self)))


def _order(size: int, *, seed: str, shuffle: bool) -> Sequence[int]:
    """Return the order in which a source's rows are drawn; its own where all are drawn alike."""
    if not shuffle:
        return range(size)
    order = list(range(size))
    Random(seed).shuffle(order)
    return order
