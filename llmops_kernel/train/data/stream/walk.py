"""Walks through the rows of one worker in their order, from any position on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from llmops_kernel.errors import DataError
from llmops_kernel.train.data.stream.order import (
    WINDOW_BYTES,
    Piece,
    Window,
    order,
    row_order,
    windows,
)
from llmops_kernel.train.data.stream.plan import StreamPlan
from llmops_kernel.train.data.stream.reader import PartRows, Row, read


@dataclass(frozen=True)
class Span:
    """A window at its place among all rows that the worker trains on."""

    window: Window
    sizes: tuple[int, ...]
    """Rows of each piece."""
    start: int
    """Rows of the worker before it, in all epochs."""
    epoch_share: tuple[float, float]
    """Share of the worker's epoch before and after it, by bytes."""

    @cached_property
    def count(self) -> int:
        return sum(self.sizes)

    @property
    def end(self) -> int:
        return self.start + self.count

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        return tuple(accumulate(self.sizes))

    def place(self, row: int) -> tuple[int, int]:
        """Return the piece of a row of the window, unshuffled, and the row's number in its part."""
        piece = bisect_right(self._ends, row)
        before = self._ends[piece - 1] if piece else 0
        return piece, self.window.pieces[piece].begin + row - before


@dataclass(frozen=True)
class Located:
    """A row that is yet to be decoded."""

    rows: PartRows
    number: int
    """In its part."""
    part: int
    position: int
    """Among all rows of the worker, in all epochs."""
    source: int = 0
    """Number of its source."""

    def decode(self) -> Row:
        return self.rows.row(self.number, self.label)

    @property
    def label(self) -> str:
        """Return the row's name in errors, until its place in the file is looked up."""
        return f"{self.part}:{self.number}"


@dataclass
class Walk:
    """A worker's walk through the data of one source."""

    plan: StreamPlan
    rank: int
    world: int
    seed: int
    shuffle: bool = True
    num_epochs: int | None = None
    """None: without end."""
    counts: dict[int, int] = field(default_factory=dict)
    """Rows of JSONL parts that are known; more are added while they are read."""
    spans: list[Span] = field(default_factory=list)
    """The windows from the first one on, as far as they are known."""
    end: int | None = None
    """Rows of the worker in all epochs; None until the last window is known."""
    weight: float = 1.0
    """Number of times that each row is seen in an epoch."""
    window_bytes: int = WINDOW_BYTES
    turn: int = 0
    """Shifts which worker gets which share, so that not all sources give one the smaller share."""

    def reset(self) -> None:
        """Forget where the rows were, before walking again."""
        self.spans, self.end = [], None

    def rows(self, start: int = 0) -> Iterator[Located]:
        """Yield the worker's rows from a position on. Nothing before it is decoded.

        Windows before it are not read either, except JSONL whose lines are yet to be counted.
        Raises DataError.
        """
        epoch = before = 0
        while self.num_epochs is None or epoch < self.num_epochs:
            for window, share in self.windows_of(epoch):
                span, loaded = self.opened(window, share)
                if span.end > start:
                    yield from self._shuffled(span, loaded or self.load(window), start)
            if self.known == before:
                raise too_few(self.plan.source, self.rank, self.world)
            before = self.known
            epoch += 1
        self.end = self.known

    @property
    def known(self) -> int:
        """Return rows of the worker in the windows that are known."""
        return self.spans[-1].end if self.spans else 0

    def windows_of(self, epoch: int) -> Iterator[tuple[Window, tuple[float, float]]]:
        """Yield the worker's windows of an epoch, each with the share of it before and after."""
        plan = self.plan
        shares = order(
            plan.parts,
            seed=self.seed,
            epoch=epoch,
            world=self.world,
            shuffle=self.shuffle,
            weight=self.weight,
        )
        pieces = shares[(self.rank + self.turn) % self.world]
        total, passed = sum(self._bytes(piece) for piece in pieces) or 1, 0
        for window in windows(pieces, plan.parts, epoch=epoch, window_bytes=self.window_bytes):
            begin = passed
            passed += sum(self._bytes(piece) for piece in window.pieces)
            yield window, (begin / total, passed / total)

    def known_windows(self, epoch: int) -> list[tuple[Window, tuple[float, float], int]] | None:
        """Return the windows of an epoch, each with its share and its rows.

        None where they have to be read to count their rows.
        """
        result = []
        for window, share in self.windows_of(epoch):
            sizes = self._known_sizes(window)
            if sizes is None:
                return None
            result.append((window, share, sum(sizes)))
        return result

    def opened(
        self, window: Window, share: tuple[float, float]
    ) -> tuple[Span, list[PartRows] | None]:
        """Add the next window to the spans. Return its parts as well if they had to be read."""
        loaded: list[PartRows] | None = None
        sizes = self._known_sizes(window)
        if sizes is None:
            loaded = self.load(window)
            sizes = self._sizes(window, loaded)
        span = Span(window, tuple(sizes), self.known, share)
        self.spans.append(span)
        return span, loaded

    def epoch_at(self, num_rows: int) -> float:
        """Return the epochs of the worker's first rows, with their fraction."""
        span = self.span_at(max(0, num_rows - 1))
        if span is None or not span.count:
            return 0.0
        done = min(1.0, (num_rows - span.start) / span.count)
        begin, end = span.epoch_share
        return span.window.epoch + begin + (end - begin) * done

    def span_at(self, position: int) -> Span | None:
        spans = self.spans
        index = bisect_right(spans, position, key=lambda span: span.start) - 1
        return spans[index] if index >= 0 else None

    def chosen(self, span: Span) -> Sequence[int]:
        """Return the order of a window's rows, each by its number in it."""
        return row_order(
            span.window, span.count, seed=self.seed, rank=self.rank, shuffle=self.shuffle
        )

    def _bytes(self, piece: Piece) -> int:
        part = self.plan.parts[piece.part]
        if piece.end is None or not part.num_rows:
            return part.num_bytes
        return part.num_bytes * (piece.end - piece.begin) // part.num_rows

    def _known_sizes(self, window: Window) -> list[int] | None:
        sizes = []
        for piece in window.pieces:
            end = self.counts.get(piece.part) if piece.end is None else piece.end
            if end is None:
                return None
            sizes.append(end - piece.begin)
        return sizes

    def load(self, window: Window) -> list[PartRows]:
        """Read a window's parts, each once."""
        plan = self.plan
        rows = {
            part: read(plan.files, plan.parts[part])
            for part in dict.fromkeys(piece.part for piece in window.pieces)
        }
        return [rows[piece.part] for piece in window.pieces]

    def _sizes(self, window: Window, loaded: list[PartRows]) -> list[int]:
        for piece, rows in zip(window.pieces, loaded, strict=True):
            if piece.end is None:
                self.counts[piece.part] = len(rows)
        return self._known_sizes(window) or []

    def _shuffled(self, span: Span, loaded: list[PartRows], start: int) -> Iterator[Located]:
        """Yield the rows of a window from a position on; what is read is held until the end."""
        order = self.chosen(span)
        for position in range(max(span.start, start), span.end):
            piece, number = span.place(order[position - span.start])
            part = span.window.pieces[piece].part
            yield Located(loaded[piece], number, part, position)


def too_few(source: str, rank: int, world: int) -> DataError:
    return DataError(
        f"{source} has too few rows to be divided among {world} workers: worker {rank} has none.",
        remedy="set data.streaming=false, or fewer workers in parallelism.num_workers",
    )
