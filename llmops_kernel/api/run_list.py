"""Several runs at once: a list that prints as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence

from llmops_kernel.api.run_handle import Run
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.store import RunSummary
from llmops_kernel.views.run_table import run_table


class RunList(list[Run]):
    """Runs, newest first; prints as a table of their state at the time of the call."""

    def __init__(self, backend: Backend, summaries: Sequence[RunSummary]) -> None:
        super().__init__(Run(backend, summary.run_id) for summary in summaries)
        self.summaries = tuple(summaries)

    def __repr__(self) -> str:
        return run_table(self.summaries, now_s=time.time()).text() if self else "no runs yet"

    def _repr_html_(self) -> str:
        return run_table(self.summaries, now_s=time.time()).html() if self else "no runs yet"
