"""Summaries of runs for lists: state, progress, figures and a small curve."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from llmops_kernel.errors import RunNotFoundError, StoreError
from llmops_kernel.kinds.registry import kind_named, new_view
from llmops_kernel.store.journal.journal import FolderTail
from llmops_kernel.store.journal.summary import RunSummary
from llmops_kernel.store.journal.view import FEW_CELLS, RunView, finite, read_thinned
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.figures import figures
from llmops_kernel.views.snapshot import began_s, waiting_text
from llmops_kernel.views.state_text import state_text

CURVE_POINTS = 60


def summarise(record: RunRecord, view: RunView, attempts: Sequence[Attempt]) -> RunSummary:
    """Return one line of a list. An attempt that has reported nothing yet is PENDING."""
    has_reported = not attempts or attempts[-1].number <= view.attempt
    return RunSummary(
        run_id=record.run_id,
        kind=record.kind,
        name=record.name,
        cluster=record.cluster,
        created_s=record.created_s,
        hidden=record.hidden,
        state=view.state if has_reported else "PENDING",
        attempt=max([view.attempt, *(attempt.number for attempt in attempts)]),
        began_s=began_s(view) if has_reported else None,
        ended_s=view.end.time_s if has_reported and view.end else None,
        progress=view.progress,
        figures=figures(view),
        curve=curve(view),
        parent=record.parent,
        reason=_reason(view) if has_reported and not view.is_terminal else "",
        message=view.message if has_reported else "",
        remedy=view.remedy if has_reported else "",
    )


def _reason(view: RunView) -> str:
    """Return why a run is in its state; before its first rows also what it does."""
    return state_text(view) or waiting_text(view).removesuffix("…")


def curve(view: RunView, *, points: int = CURVE_POINTS) -> tuple[float | None, ...]:
    """Return the kind's curve, evenly spread; reads at most `points` rows."""
    kind = kind_named(view.kind)
    column = kind.column(kind.curve)
    if column is None:
        return ()
    rows = view.rows
    last, count = len(rows) - 1, min(points, len(rows))
    picked = (rows[i * last // (count - 1) if count > 1 else last] for i in range(count))
    return tuple(finite(column.value(row)) for row in picked)


def summary_of(store: RunStore, run_id: str) -> RunSummary | None:
    """Read a run's journal and summarise it; None for a run that is broken or was deleted."""
    try:
        record = store.record(run_id)
        view = new_view(record.kind)
        read_thinned(FolderTail(store.folder(run_id).journal), view, max_cells=FEW_CELLS)
        return summarise(record, view, store.attempts(run_id))
    except (StoreError, RunNotFoundError):
        return None  # Asking for the run by its name reports the reason.


def list_runs(
    store: RunStore,
    *,
    name: str | None = None,
    cluster: str | None = None,
    starred: bool | None = None,
    hidden: bool = False,
    limit: int | None = None,
) -> list[RunSummary]:
    """Return summaries, newest first; runs of benchmarks and self-tests only with `hidden`."""
    return store.list(
        partial(summary_of, store),
        name=name,
        cluster=cluster,
        starred=starred,
        hidden=hidden,
        limit=limit,
    )
