"""Names that no two runs share, each made when asked for: a table shows a few of thousands."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from llmops_kernel.views.run_query.order import value_key
from llmops_kernel.views.run_query.row import Row

SEPARATOR = " · "
"""Between the parts of a name."""


class Labels(Mapping[str, str]):
    """A text of each run, by id; to those that several have, the time of submission is added.

    And a number, if the time is the same too.
    """

    def __init__(self, texts: Mapping[str, str], rows: Sequence[Row]) -> None:
        self._texts = texts
        self._counts = Counter(texts.values())
        self._same: dict[str, list[Row]] = {}
        for row in rows:
            text = texts[row.run_id]
            if self._counts[text] > 1:
                self._same.setdefault(text, []).append(row)
        self._form = _form([_created(row) for same in self._same.values() for row in same])
        self._told_apart: dict[str, dict[str, str]] = {}

    def __getitem__(self, run_id: str) -> str:
        text = self._texts[run_id]
        if self._counts[text] == 1:
            return text
        if text not in self._told_apart:
            self._told_apart[text] = self._apart(text, self._same[text])
        return self._told_apart[text][run_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def _apart(self, text: str, rows: Sequence[Row]) -> dict[str, str]:
        """Return names of runs that have the same text."""
        named = {
            row.run_id: f"{text}{SEPARATOR}{time.strftime(self._form, _local(_created(row)))}"
            for row in rows
        }
        again, seen = Counter(named.values()), Counter[str]()
        shared = [run_id for run_id, name in named.items() if again[name] + self._counts[name] > 1]
        for run_id in sorted(shared, key=value_key):
            name = named[run_id]
            seen[name] += 1
            named[run_id] = f"{name} #{seen[name]}"
        return named


def _form(moments: Sequence[float]) -> str:
    """Return how times are written: with the date if they are of several days."""
    days = {_local(moment)[:3] for moment in (min(moments, default=0), max(moments, default=0))}
    return "%H:%M:%S" if len(days) == 1 else "%d %b %H:%M:%S"


def _created(row: Row) -> float:
    created = row.get("created")
    return created if isinstance(created, int | float) else 0.0


def _local(seconds: float) -> time.struct_time:
    try:
        return time.localtime(seconds)
    except (OverflowError, OSError, ValueError):
        return time.localtime(0)
