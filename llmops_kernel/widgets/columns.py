"""Step events as rows of 32-bit floats: what travels to the browser in binary buffers."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter

from llmops_kernel.metrics.events import StepEvent
from llmops_kernel.runs.view import RunView

FIELDS = (
    "step",
    "loss",
    "mfu",
    "tokens_per_second",
    "peak_memory_bytes",
    "host_memory_bytes",
    "step_time_s",
)
"""One row a step, in this order; static/data.js names the same."""


_VALUES = attrgetter(*FIELDS)
ROW_BYTES = 4 * len(FIELDS)


def pack(steps: Iterable[StepEvent]) -> bytes:
    """Row after row; an unknown number is NaN. Step numbers are exact up to 2**24."""
    values = chain.from_iterable(map(_VALUES, steps))
    return array("f", [math.nan if value is None else value for value in values]).tobytes()


class StepCursor:
    """Remembers which steps were sent, and finds the first that is new or was replaced."""

    def __init__(self) -> None:
        self._sent: list[StepEvent] = []
        self._count = 0

    def advance(self, view: RunView) -> tuple[int, list[StepEvent]] | None:
        """(index of the first changed row, all rows from there on), or None without news.

        The view appends to one list while it follows and makes a new one when a restart
        replaced steps, so only then the rows have to be compared.
        """
        steps = view.steps
        first = self._count if steps is self._sent else self._common(steps)
        unchanged = first == self._count == len(steps)
        self._sent, self._count = steps, len(steps)
        return None if unchanged else (first, steps[first:])

    def _common(self, steps: list[StepEvent]) -> int:
        sent = self._sent[: self._count]
        for index, (old, new) in enumerate(zip(sent, steps, strict=False)):
            if old is not new:
                return index
        return min(len(sent), len(steps))


class PackedSteps:
    """The packed rows of one view, kept beside it: each is packed once for all who ask."""

    def __init__(self) -> None:
        self._cursor = StepCursor()
        self._rows = bytearray()
        self.generation = 0
        """How often rows that were here have been replaced; a reader of another one starts anew."""

    def __len__(self) -> int:
        return len(self._rows) // ROW_BYTES

    def sync(self, view: RunView) -> int | None:
        """Take over what is new; the index of the first row that changed, None without news."""
        news = self._cursor.advance(view)
        if news is None:
            return None
        first, steps = news
        if first < len(self):
            self.generation += 1
            del self._rows[first * ROW_BYTES :]
        self._rows += pack(steps)
        return first

    def rows(self, first: int = 0) -> bytes:
        """From row `first` on."""
        return bytes(memoryview(self._rows)[first * ROW_BYTES :])
