"""Several runs side by side: what differs, figures, answers to the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Literal

from llmops_kernel.server.base import RequestError
from llmops_kernel.server.runs.followers import Followers
from llmops_kernel.server.runs.rows import read_row
from llmops_kernel.server.wire.runs import (
    Change,
    CodeChange,
    ComparedFigure,
    ComparedSample,
    Comparison,
    RunDifference,
)
from llmops_kernel.services import comparison
from llmops_kernel.store.diff.runs import RunDiff
from llmops_kernel.store.diff.values import Difference, value_text
from llmops_kernel.store.journal.summary import FigureValue
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views import format as fmt
from llmops_kernel.views.comparison.tables import phase_names, phase_seconds
from llmops_kernel.views.figures import compared_figures, group_of
from llmops_kernel.views.run_text.sample_history import compared_samples
from llmops_kernel.views.snapshot import elapsed_s

MAX_RUNS = 8


def compare(followers: Followers, refs: Sequence[str], *, base: str | None = None) -> Comparison:
    """Compare runs, oldest first: each with the next, or `base` with all others."""
    if not 2 <= len(refs) <= MAX_RUNS:
        raise RequestError(f"compare 2 to {MAX_RUNS} runs, not {len(refs)}", status=422)
    with ExitStack() as stack:
        watched = {w.run.id: w for w in (stack.enter_context(followers.watching(r)) for r in refs)}
        compared = comparison.compare(followers.store, list(watched), base=base)
        ordered = [watched[run_id] for run_id in compared.run_ids]
        for item in ordered:
            stack.enter_context(item.lock)
        rows = [read_row(item, followers.store) for item in ordered]
        return Comparison(
            runs=[row.model_copy(update={"differs": compared.names[row.run_id]}) for row in rows],
            figures=figures([item.view for item in ordered]),
            differences=[_difference(diff) for diff in compared.diffs],
            samples=[
                ComparedSample.model_validate(one)
                for one in compared_samples([item.view for item in ordered])
            ],
            has_rows=comparison.has_rows(followers.store, compared.run_ids),
        )


def figures(views: Sequence[RunView]) -> list[ComparedFigure]:
    """Return one entry per figure of at least one run, then the time taken and each phase."""
    by_run = [{figure.key: figure for figure in compared_figures(view)} for view in views]
    keys = dict.fromkeys(key for mine in by_run for key in mine)
    compared = [_figure([mine.get(key) for mine in by_run]) for key in keys]
    compared.append(_seconds("duration", "speed", [elapsed_s(view) for view in views]))
    phases = [phase_seconds(view) for view in views]
    for name in phase_names([("", view) for view in views]):
        took = [mine.get(name) for mine in phases]
        compared.append(_seconds(name.replace("_", " "), "start", took))
    return [figure for figure in compared if any(text != fmt.DASH for text in figure.texts)]


def _figure(values: Sequence[FigureValue | None]) -> ComparedFigure:
    """One figure of all runs; None for a run whose kind does not have it."""
    known = next(value for value in values if value is not None)
    numbers = [None if value is None else value.value for value in values]
    return ComparedFigure(
        label=known.label,
        group=group_of(known),
        texts=[fmt.DASH if value is None else value.text for value in values],
        changes=[fmt.change(number, numbers[0], known.unit) for number in numbers],
    )


def _seconds(
    label: str, group: Literal["speed", "start"], values: Sequence[float | None]
) -> ComparedFigure:
    return ComparedFigure(
        label=label,
        group=group,
        texts=[fmt.seconds(value) for value in values],
        changes=[fmt.change(value, values[0], "seconds") for value in values],
    )


def _difference(diff: RunDiff) -> RunDifference:
    return RunDifference(
        before=diff.a,
        after=diff.b,
        config=[_change(row) for row in diff.config],
        environment=[_change(row) for row in diff.environment],
        code=[
            CodeChange(
                path=change.path,
                kind=change.kind,
                unified_diff=change.unified_diff,
                is_code=change.is_code,
                counts=change.counts,
            )
            for change in diff.code
        ],
    )


def _change(row: Difference) -> Change:
    path, before, after = row
    return Change(path=path, before=value_text(before), after=value_text(after))
