"""Reads a bounded number of rows from all over a source."""

from __future__ import annotations

from itertools import islice

from llmops_kernel.errors import DataError
from llmops_kernel.store.files import find
from llmops_kernel.train.data.preview.lines import of_lines
from llmops_kernel.train.data.preview.parquet import WHOLE_ROWS, of_parquet
from llmops_kernel.train.data.preview.parts import of_parts
from llmops_kernel.train.data.preview.wanted import Numbered, Sample, Wanted
from llmops_kernel.train.data.sources import Row, load_rows, open_rows

WHOLE_BYTES = 16 * 1024**2
"""A file up to here is read whole: a fraction of a second."""
MOST_COMPARED = WHOLE_ROWS


def sample(wanted: Wanted, *, count: int, seed: int) -> Sample:
    """Return all rows of a small source, else about `count` of it. Raises DataError.

    Of a large JSONL, CSV or text file lines are read at places that `seed` chooses, in equal
    pieces of it; of a large Parquet file the first rows of some row groups; of other streamed
    rows the first ones of some parts; of anything else the first rows.
    """
    path = find(wanted.source, wanted.roots) if "://" not in wanted.source else None
    found = None
    if path is not None and path.is_file():
        if path.suffix == ".parquet":
            return of_parquet(path, wanted, count=count) or _whole(wanted)
        if path.stat().st_size <= WHOLE_BYTES:
            return _whole(wanted)
        if not _is_quick(wanted):
            found = of_lines(path, wanted, count=count, seed=seed)
    elif wanted.is_streamed:
        return of_parts(wanted, count=count)
    return found or _first(wanted, wanted.limit if _is_quick(wanted) else count)


def row_at(wanted: Wanted, number: int) -> Row:
    """Return one row of a source by its number, from 1. Raises DataError."""
    local = find(wanted.source, wanted.roots) if "://" not in wanted.source else None
    if wanted.is_streamed and (local is None or local.is_dir()):
        raise DataError(
            f"Rows of {wanted.source}, which are streamed, have no numbers.",
            remedy="name one of its files: `llmops data CONFIG data.train=FILE --row N`",
        )
    every = open_rows(wanted.source, roots=wanted.roots, split=wanted.split, nulls=wanted.nulls)
    rows = islice(every, wanted.limit)
    last = 0
    for last, row in enumerate(rows, start=1):
        if last == number:
            return row
    raise DataError(
        f"{wanted.source} has no row {number:,}: the run uses {last:,}.",
        remedy=f"choose a row from 1 to {last:,}" if last else "check the file",
    )


def _is_quick(wanted: Wanted) -> bool:
    return wanted.limit is not None and wanted.limit <= MOST_COMPARED


def _load(wanted: Wanted, limit: int | None) -> list[Numbered]:
    rows = load_rows(
        wanted.source,
        roots=wanted.roots,
        split=wanted.split,
        limit=limit,
        broken=wanted.broken,
        nulls=wanted.nulls,
    )
    return [Numbered(row, number) for number, row in enumerate(rows, start=1)]


def _whole(wanted: Wanted) -> Sample:
    rows = _load(wanted, wanted.limit)
    return Sample(rows, len(rows))


def _first(wanted: Wanted, count: int | None) -> Sample:
    """Return the first rows, and whether these are all: one more is asked for."""
    rows = _load(wanted, None if count is None else count + 1)
    if count is None or len(rows) <= count:
        return Sample(rows, len(rows))
    if count == wanted.limit:
        return Sample(rows[:count], count)
    return Sample(rows[:count], wanted.limit, where="the first rows")
