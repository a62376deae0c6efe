"""Comparisons of outputs that are kept for the next page of rows."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmops_kernel.services.comparison import compare_outputs
from llmops_kernel.store.store import RunStore

if TYPE_CHECKING:  # Imports pandas, which a server needs only for the first comparison.
    from llmops_kernel.services.scoring.compare import OutputComparison

_KEPT = 2
"""Comparisons in memory: one of a million rows has about 0.4 GB."""


class OutputComparisons:
    """Comparisons that were asked for lately, so that the next page is not joined anew."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, ...], OutputComparison] = OrderedDict()

    def of(self, refs: Sequence[str]) -> OutputComparison:
        """Return the comparison of two runs. Raises ComparisonError, RunNotFoundError."""
        ids = [self._store.resolve(ref) for ref in refs]
        # A retry may write more rows.
        key = tuple(f"{run_id}/{len(self._store.attempts(run_id))}" for run_id in sorted(ids))
        with self._lock:
            if key not in self._kept:
                self._kept[key] = compare_outputs(self._store, ids)
            self._kept.move_to_end(key)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return self._kept[key]
