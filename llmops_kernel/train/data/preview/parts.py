"""Rows from all over data that a run streams: of some of its parts the first rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llmops_kernel.errors import DataError
from llmops_kernel.train.data.preview.wanted import Numbered, Sample, Wanted
from llmops_kernel.train.data.stream.order import StreamPart
from llmops_kernel.train.data.stream.plan import StreamPlan, plan_stream
from llmops_kernel.train.data.stream.reader import LINES, PartRows, place, read, read_first

_PARTS = 16
_HEAD_BYTES = 128 << 10
"""Of a part of a text so much is read, and more only if no row begins there."""


def of_parts(wanted: Wanted, *, count: int) -> Sample:
    """Return about `count` rows. Raises DataError."""
    plan = plan_stream(wanted.source, roots=wanted.roots, split=wanted.split)
    used = min(_PARTS, len(plan.parts))
    chosen = [plan.parts[piece * len(plan.parts) // used] for piece in range(used)]
    each = -(-count // used)
    heads = [_head(plan, part, each, wanted) for part in chosen]
    rows: list[Numbered] = []
    for part, found in heads:
        for index in range(min(len(found), each)):
            one = _of_part(plan, part, found, index, wanted.broken)
            rows += [] if one is None else [one]
    total, is_exact = _estimated_rows(plan, heads)
    files = "1 file" if len(plan.files) == 1 else f"{len(plan.files):,} files"
    where = "" if len(rows) == total else f"from all over {files}"
    return Sample(rows, total, is_estimate=not is_exact, where=where)


def _head(
    plan: StreamPlan, part: StreamPart, each: int, wanted: Wanted
) -> tuple[StreamPart, PartRows]:
    """Return the beginning of a part, and the rows that begin in it."""
    if plan.files[part.file].format not in LINES:
        return part, read_first(plan.files, part, rows=each, columns=wanted.columns)
    size = _HEAD_BYTES
    while size < part.num_bytes:
        head = replace(part, num_bytes=size)
        found = read(plan.files, head)
        if len(found):
            return head, found
        size *= 8
    return part, read(plan.files, part)


def _estimated_rows(
    plan: StreamPlan, heads: Sequence[tuple[StreamPart, PartRows]]
) -> tuple[int, bool]:
    """Return the rows of an epoch, and whether their number is exact: lines are not counted."""
    known = sum(one.num_rows or 0 for one in plan.parts)
    lines = [one for one in plan.parts if one.num_rows is None]
    read_bytes = sum(part.num_bytes for part, _ in heads if part.num_rows is None)
    read_rows = sum(len(found) for part, found in heads if part.num_rows is None)
    all_bytes = sum(part.num_bytes for part in lines)
    if read_bytes == all_bytes:
        return known + read_rows, True
    if not read_bytes:
        return known, False
    return known + round(read_rows / read_bytes * all_bytes), False


def _of_part(
    plan: StreamPlan, part: StreamPart, found: PartRows, index: int, broken: list[str] | None
) -> Numbered | None:
    def label() -> str:
        return place(plan.files, part, index)

    try:
        return Numbered(found.row(index, "?"), None, label)
    except DataError:
        if broken is None:
            found.row(index, label())  # raises again, with its place
            raise
        broken.append(f"{label()} cannot be read")
        return None
