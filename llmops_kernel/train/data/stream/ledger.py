"""The ledger: which rows each worker has trained on, and the reading of it from a journal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from llmops_kernel.metrics.events import Event, OpenWindow, RankRows, RowsEvent, StartEvent
from llmops_kernel.train.data.stream.order import Window, row_order
from llmops_kernel.train.data.stream.parts import Piece
from llmops_kernel.train.data.stream.walk import Span, Walk

Runs = dict[int, list[tuple[int, int, int]]]


def rank_rows(walk: Walk, *, begin: int, end: int, source: int = 0) -> RankRows:
    """Return what a worker trained on of a source from its row `begin` up to `end`.

    Windows that end in between are listed whole, also where they began before.
    """
    if walk.end is not None:
        end = min(end, walk.end)
    whole: dict[int, list[int]] = defaultdict(list)
    cut: Runs = defaultdict(list)
    open_window = None
    for span in walk.spans:
        if span.end <= begin or span.start >= end:
            continue
        if span.end > end:
            open_window = _open(span, end)
            continue
        for piece, size in zip(span.window.pieces, span.sizes, strict=True):
            if _is_whole(walk, piece):
                whole[span.window.epoch].append(piece.part)
            elif size:
                run = (piece.part, piece.begin, piece.begin + size)
                cut[span.window.epoch].append(run)
    return RankRows(
        rank=walk.rank,
        source=source,
        num_rows=max(0, end - begin),
        whole={epoch: ranges(parts) for epoch, parts in whole.items()},
        cut={epoch: tuple(runs) for epoch, runs in cut.items()},
        open=open_window,
    )


def _is_whole(walk: Walk, piece: Piece) -> bool:
    rows = walk.plan.parts[piece.part].num_rows
    return piece.begin == 0 and (piece.end is None or piece.end == rows)


def _open(span: Span, end: int) -> OpenWindow:
    pieces = tuple(
        (piece.part, piece.begin, piece.begin + size)
        for piece, size in zip(span.window.pieces, span.sizes, strict=True)
    )
    window = span.window
    return OpenWindow(
        epoch=window.epoch, number=window.number, pieces=pieces, done=end - span.start
    )


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as `0-31,40`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] + 1 == number:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in spans)


def numbers_of(text: str) -> list[int]:
    """Return the numbers of `0-31,40`."""
    found: list[int] = []
    for span in filter(None, text.split(",")):
        first, _, last = span.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def lineage(events: Iterable[Event]) -> list[RowsEvent]:
    """Return the ledger of the model that came out: without what was undone by a restart.

    The events of a journal in the order of writing.
    """
    kept: list[RowsEvent] = []
    stream = ""
    for event in events:
        if isinstance(event, StartEvent) and event.stream != stream:
            stream = event.stream
            kept = [one for one in kept if one.step < event.first_step]
        elif isinstance(event, RowsEvent):
            kept.append(event)
    return kept


def trained_rows(
    ledger: Sequence[RowsEvent],
    sizes: Sequence[int],
    *,
    seed: int,
    shuffle: bool = True,
    source: int = 0,
) -> dict[int, list[tuple[int, int, int]]]:
    """Return (part, row, rank) of each row of a source that was trained on, by epoch.

    A row is in it as often as it was seen. `sizes`: rows of each part; `seed`: that of the source
    (`source_seed`).
    """
    found: Runs = defaultdict(list)
    last: dict[int, OpenWindow | None] = {}
    for event in ledger:
        for rank in (one for one in event.ranks if one.source == source):
            last[rank.rank] = rank.open
            for epoch, parts in rank.whole.items():
                runs = [(part, 0, sizes[part]) for part in numbers_of(parts)]
                found[epoch] += _rows(runs, rank.rank)
            for epoch, cut in rank.cut.items():
                found[epoch] += _rows(cut, rank.rank)
    for number, window in last.items():
        if window is not None:
            found[window.epoch] += _begun(window, number, seed=seed, shuffle=shuffle)
    return dict(found)


def _rows(runs: Iterable[tuple[int, int, int]], rank: int) -> list[tuple[int, int, int]]:
    return [(part, row, rank) for part, begin, end in runs for row in range(begin, end)]


def _begun(
    window: OpenWindow, rank: int, *, seed: int, shuffle: bool
) -> list[tuple[int, int, int]]:
    rows = _rows(window.pieces, rank)
    shape = Window(window.epoch, window.number, ())
    chosen = row_order(shape, len(rows), seed=seed, rank=rank, shuffle=shuffle)
    return [rows[chosen[number]] for number in range(window.done)]
