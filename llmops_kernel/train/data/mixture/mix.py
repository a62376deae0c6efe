"""The rows of several sources, in turn: one worker's way through all of the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from llmops_kernel.train.data.mixture.turns import Key, Tracker, Turns, keys
from llmops_kernel.train.data.stream.order import WINDOW_BYTES
from llmops_kernel.train.data.stream.plan import StreamPlan
from llmops_kernel.train.data.stream.reader import PartRows
from llmops_kernel.train.data.stream.walk import Located, Span, Walk, too_few

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
    """One worker's way through all sources. Of a single source it is the walk through that."""

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
        """The plans of all sources in one; each source has parts of its own."""
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
        for walk in self.walks:
            walk.end = walk.known
        self.end = position

    def split(self, num_rows: int) -> tuple[int, ...]:
        """Return how many of the first rows, which were handed out, are of each source."""
        if len(self.walks) == 1:
            return (num_rows,)
        return self._tracker.split(self._until_end(num_rows))

    def epoch_at(self, num_rows: int) -> float:
        """Return the epochs of the first rows, which were handed out, with their fraction."""
        if len(self.walks) > 1:
            return self._tracker.epoch_at(self._until_end(num_rows))
        return self.walks[0].epoch_at(num_rows)

    def _until_end(self, num_rows: int) -> int:
        return num_rows if self.end is None else min(num_rows, self.end)

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
        known = [each for each in windows if each is not None]
        count = sum(rows for each in known for _, _, rows in each)
        if len(known) < len(windows) or count > most:
            return None
        for walk, each in zip(self.walks, known, strict=True):
            for window, share, _ in each:
                walk.opened(window, share)
        return count

    def _epoch(self, epoch: int, position: int, start: int) -> Iterator[Located | None]:
        """Yield the rows of an epoch in turn; None for each that is before `start`."""
        lanes = [_Lane(walk, number, epoch) for number, walk in enumerate(self.walks)]
        turns = Turns(self._keys(epoch))
        for number, lane in enumerate(lanes):
            if lane.span is not None:
                turns.enter(number, lane.span, 0)
        while (taken := turns.take()) is not None:
            lane = lanes[taken[1]]
            yield lane.row(position) if position >= start else None
            position += 1
            if (span := lane.advance()) is not None:
                turns.enter(taken[1], span, lane.next)


class _Lane:
    """One source's rows of an epoch, window by window."""

    def __init__(self, walk: Walk, source: int, epoch: int) -> None:
        self._walk, self._source = walk, source
        self._windows = walk.windows_of(epoch)
        self._loaded: list[PartRows] | None = None
        self._chosen: Sequence[int] | None = None
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
        if self._chosen is None:
            self._chosen = self._walk.chosen(span)
        piece, number = span.place(self._chosen[self.next])
        part = span.window.pieces[piece].part
        return Located(self._loaded[piece], number, part, position, self._source)

    def _open(self) -> None:
        self.span, self.next = None, 0
        self._loaded = self._chosen = None  # Before the next window is read.
        for window, share in self._windows:
            span, loaded = self._walk.opened(window, share)
            if span.count:
                self.span, self._loaded = span, loaded
                return


def mixed(walk: Walk | Mix) -> Mix:
    """Return the way through all of the data, if it is only one source too."""
    return walk if isinstance(walk, Mix) else Mix((walk,), walk.seed)
