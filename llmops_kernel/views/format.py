"""Formats numbers and times as readable text. Pure; an unknown value is always a dash."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmops_kernel.store.journal.summary import Unit

DASH = "–"
_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_SPARKS = "▁▂▃▄▅▆▇█"


def known(value: float | None) -> bool:
    """Return True for a number that can be shown: neither missing nor NaN nor infinite."""
    return value is not None and math.isfinite(value)


def seconds(value: float | None) -> str:
    """Return `0.4 s`, `12.3 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`."""
    if value is None or not known(value):
        return DASH
    if value < 0:
        return "0.0 s"
    if value < 0.0995:
        return f"{value * 1e3:.0f} ms"
    if value < 59.95:
        return f"{value:.1f} s"
    whole = round(value)
    minutes, rest_s = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02d} s"
    hours, minutes = divmod(round(value / 60), 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def step_time(value: float | None) -> str:
    """Return a step's time with three digits, so that a change of one percent shows."""
    if value is None or not known(value):
        return DASH
    if value < 0.9995:
        return f"{_digits(value * 1e3)} ms"
    return f"{_digits(value)} s" if value < 60 else seconds(value)


def count(value: float | None) -> str:
    """Return whole numbers with thin groups up to 99,999, then `1.23 M`."""
    if value is None or not known(value):
        return DASH
    if abs(value) < 99_999.5:
        return f"{value:,.0f}"
    return _scaled(value)


def rate(value: float | None, unit: str = "") -> str:
    """Return `0.85`, `12.3`, `1,234`, `123 k`; the unit follows."""
    if value is None or not known(value):
        return DASH
    text = count(value) if abs(value) >= 999.5 else _digits(value)
    return f"{text} {unit}" if unit else text


def flops(value: float | None) -> str:
    """Return a rate of floating point operations: `1.2 TFLOPS`."""
    if value is None or not known(value):
        return DASH
    return f"{_scaled(value)}FLOPS"


def byte_size(value: float | None) -> str:
    """Return binary units, three digits: `512 B`, `1.50 GiB`."""
    if value is None or not known(value):
        return DASH
    for size, unit in _BYTES:
        if abs(value) >= size * 0.9995:
            return f"{_digits(value / size)} {unit}"
    return f"{value:.0f} B"


def percent(value: float | None) -> str:
    """Return a fraction 0..1 as percent: `41.2 %`, `0.083 %`."""
    if value is None or not known(value):
        return DASH
    if value == 0:
        return "0 %"
    return f"{_digits(value * 100)} %" if abs(value) < 0.1 else f"{value * 100:.1f} %"


def loss(value: float | None) -> str:
    """Return four digits after the point; small losses by exponent. NaN is shown as NaN."""
    if value is None:
        return DASH
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.4f}"


def number(value: float | None) -> str:
    """Return any other number: up to four significant digits."""
    return DASH if value is None or not known(value) else f"{value:.4g}"


def money(value: float | None) -> str:
    """Return `1,234.50`, `0.12`, `0.0042`: the currency follows."""
    if value is None or not known(value):
        return DASH
    return f"{value:,.2f}" if value == 0 or abs(value) >= 0.0995 else f"{value:.2g}"


def by_unit(value: float | None, unit: Unit) -> str:
    """Write a number as its unit is written everywhere: figures, columns, comparisons."""
    return _BY_UNIT[unit](value)


def exponent(value: float | None) -> str:
    """Return a learning rate: `2.00e-04`."""
    return DASH if value is None or not known(value) else f"{value:.2e}"


_BY_UNIT: dict[Unit, Callable[[float | None], str]] = {
    "loss": loss,
    "fraction": percent,
    "per_second": rate,
    "seconds": step_time,
    "bytes": byte_size,
    "count": count,
    "exponent": exponent,
    "money": money,
    "number": number,
}


_RATIOS = ("fraction", "per_second", "seconds", "bytes", "money")
"""Units whose numbers are compared by their ratio; a loss of twice another means nothing."""


def change(value: float | None, first: float | None, unit: Unit) -> str:
    """Write how a number differs from the first one: `× 1.36`, or `+0.0123` for a loss.

    A dash where one of the two is not known, and for the ratio to zero.
    """
    if value is None or first is None or not (known(value) and known(first)):
        return DASH
    if value == first:
        return "same"
    if unit in _RATIOS:
        return f"× {_digits(value / first)}" if first else DASH
    text = by_unit(value - first, unit)
    return text if text.startswith("-") else f"+{text}"


def step_of(step: int | None, total: int | None) -> str:
    """Return `step 40 of 225`; `step 40` without a total, a dash for an unknown step."""
    if step is None and total is None:
        return "no step yet"
    text = f"step {DASH if step is None else f'{step:,}'}"
    return text if total is None else f"{text} of {total:,}"


def ellipsis(text: str, width: int) -> str:
    """Cut in the middle, so that both ends of a run id stay, which distinguish it."""
    if len(text) <= width:
        return text
    if width <= 3:
        return text[:width]
    head = (width - 1 + 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def one_line(text: str, width: int) -> str:
    """Join lines and spaces, and cut the end: a text of a model as one line of a table."""
    # More than that cannot be shown, and splitting a long text takes time.
    joined = " ".join(text[: 4 * width].split())
    return joined if len(joined) <= width else f"{joined[: max(0, width - 1)]}…"


def sparkline(values: list[float | None], width: int = 40) -> str:
    """Return a line of block characters, oldest first; each column is a mean of its share."""
    usable = [v for v in values if v is not None and math.isfinite(v)]
    if not usable or width < 1:
        return ""
    buckets = min(width, len(usable))
    edges = [len(usable) * i // buckets for i in range(buckets + 1)]
    means = [sum(usable[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    if high == low:
        return _SPARKS[len(_SPARKS) // 2] * buckets
    top = len(_SPARKS) - 1
    return "".join(_SPARKS[round((m - low) / (high - low) * top)] for m in means)


def _digits(value: float) -> str:
    """Return three significant digits without an exponent for 0.001 up to 999; more above."""
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    return f"{value:.2g}"


def _scaled(value: float) -> str:
    for size, prefix in _SI:
        if abs(value) >= size * 0.9995:
            return f"{_digits(value / size)} {prefix}"
    return f"{_digits(value)} "
