"""Fewer steps for the same curves: of each stretch the lowest and the highest of each number."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from llmops_kernel.metrics.events import StepEvent
from llmops_kernel.store.journal.whole_run import with_sums

TAIL = 64
"""So many of a worker group's last steps stay as they are: figures are read from them."""
FIELDS = tuple(
    name
    for name in StepEvent.model_fields
    if name not in ("stream", "seq", "time_s", "attempt", "kind", "step", "values", "stands_for")
)
_READ = attrgetter(*FIELDS)

Number = float | int | None


def stride_for(spans: Iterable[tuple[int, int]], *, max_rows: int) -> int:
    """Return how many steps make a stretch, a power of two, so that `max_rows` hold the spans.

    Stretches of a smaller power of two make whole ones of a larger, so what is thin can be thinned
    again with the same result.
    """
    needed = 2 * sum(last - first + 1 for first, last in spans) / max(1, max_rows)
    return 1 << max(1, math.ceil(math.log2(max(needed, 2))))


def thin(steps: Sequence[StepEvent], *, stride: int, edges: Sequence[int] = ()) -> list[StepEvent]:
    """Thin the steps of one worker group, given in order.

    The first step and the last `TAIL` stay. Of each stretch of `stride` steps there remain two,
    its first and its last, with the lowest and the highest value of each number in the order in
    which they came; and the first step whose loss is not finite. The first also has the sums over
    the stretch. No stretch goes over one of
    `edges`, steps in rising order that begin something new.
    """
    if len(steps) <= TAIL + 2:
        return list(steps)
    kept = [steps[0]]
    inner = steps[1:-TAIL]
    for _, group in groupby(
        inner, lambda one: ((one.step - 1) // stride, bisect_right(edges, one.step))
    ):
        stretch = list(group)
        kept += with_sums(_ends(stretch), stretch)
    return kept + list(steps[-TAIL:])


def _ends(group: list[StepEvent]) -> list[StepEvent]:
    bad = next((one for one in group if one.loss is not None and not math.isfinite(one.loss)), None)
    good = group if bad is None else [one for one in group if one.loss is None or _finite(one.loss)]
    if len(group) <= 2 or not good:
        return group if len(group) <= 2 else [group[0], group[-1]]
    first, last = good[0], good[-1]
    if first is last:
        return [one for one in group if one is first or one is bad]
    before, after = _numbers(group)
    ends = [first.model_copy(update=before), last.model_copy(update=after)]
    if bad is not None:
        ends = sorted([*ends, bad], key=attrgetter("step"))
    return ends


def _finite(value: float) -> bool:
    return math.isfinite(value)


def _numbers(group: Sequence[StepEvent]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return all numbers of the stretch's first row and of its second one."""
    pairs = [_extremes(column) for column in zip(*map(_READ, group), strict=True)]
    before: dict[str, Any] = {name: pair[0] for name, pair in zip(FIELDS, pairs, strict=True)}
    after: dict[str, Any] = {name: pair[1] for name, pair in zip(FIELDS, pairs, strict=True)}
    before["values"], after["values"] = _values([one.values or {} for one in group])
    return before, after


def _values(
    all_values: list[dict[str, float]],
) -> tuple[dict[str, float] | None, dict[str, float] | None]:
    names = list(all_values[0])
    columns: Iterable[Sequence[Number]]
    if all(list(one) == names for one in all_values):
        columns = zip(*(one.values() for one in all_values), strict=True)
    else:
        names = list(dict.fromkeys(name for one in all_values for name in one))
        columns = ([one.get(name) for one in all_values] for name in names)
    if not names:
        return None, None
    pairs = list(map(_extremes, columns))
    return (
        {name: pair[0] for name, pair in zip(names, pairs, strict=True)},
        {name: pair[1] for name, pair in zip(names, pairs, strict=True)},
    )


def _extremes(column: Sequence[Any]) -> tuple[Any, Any]:
    """Return the lowest and the highest in the order in which they came; (None, None) of nothing.

    Where no number is finite, it is the first one, twice.
    """
    try:
        usable = math.isfinite(sum(column))
    except TypeError:
        usable = False
    if not usable:
        known = [value for value in column if value is not None]
        column = [value for value in known if _finite(value)] or known[:1]
        if not column:
            return None, None
    low, high = min(column), max(column)
    return (low, high) if column.index(low) <= column.index(high) else (high, low)
