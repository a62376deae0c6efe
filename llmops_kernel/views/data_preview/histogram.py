"""Lengths of rows as bars, with `max_length` drawn in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmops_kernel.store.preview_job import Bin, Lengths

_FULL = "█"
_PARTS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class Line:
    """One line: a bin, or `max_length` where `bin` is None."""

    label: str
    bin: Bin | None
    is_beyond: bool = False
    """Longer than `max_length`."""


def lines(lengths: Lengths, max_length: int) -> list[Line]:
    """Return the bins in order, with `max_length` between those that it divides."""
    return list(_lines(lengths, max_length))


def _lines(lengths: Lengths, max_length: int) -> Iterator[Line]:
    mark, is_drawn = Line(f"max_length {max_length:,}", None), False
    for one in lengths.bins:
        is_beyond = one.above >= max_length
        if is_beyond and not is_drawn:
            is_drawn = True
            yield mark
        yield Line(_label(one), one, is_beyond)
    if not is_drawn:
        yield mark


def text_lines(lengths: Lengths, max_length: int, *, width: int = 40) -> list[str]:
    """Return the histogram as text of at most about 30 + `width` columns."""
    found = lines(lengths, max_length)
    most = max((one.rows for one in lengths.bins), default=0)
    label = max(len(one.label) for one in found if one.bin) if lengths.bins else 0
    count = len(f"{most:,}")
    return [_text(one, most, label=label, count=count, width=width) for one in found]


def _text(one: Line, most: int, *, label: int, count: int, width: int) -> str:
    if one.bin is None:
        return f"{one.label} ".ljust(label + count + width + 4, "-")
    return f"{one.label:>{label}}  {one.bin.rows:>{count},}  {_bar(one.bin.rows, most, width)}"


def _bar(rows: int, most: int, width: int) -> str:
    """Return a bar; any row at all is seen."""
    eighths = max(1, round(rows / most * width * 8)) if rows else 0
    return (_FULL * (eighths // 8) + _PARTS[eighths % 8]).rstrip()


def _label(one: Bin) -> str:
    if one.up_to is None:
        return f"more than {one.above:,}"
    return f"{one.above + 1:,} to {one.up_to:,}"
