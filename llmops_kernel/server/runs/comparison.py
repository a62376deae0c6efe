"""Several runs side by side: what differs, figures, answers to the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Literal

from llmops_kernel.server.base import RequestError
from llmops_kernel.server.runs.followers import Followers, Watched
from llmops_kernel.server.runs.rows import read_row
from llmops_kernel.server.wire.runs import (
    Change,
    CodeChange,
    ComparedFigure,
    Comparison,
    ComparisonMatrix,
    RunDifference,
)
from llmops_kernel.services import comparison
from llmops_kernel.services.comparison import ComparedRuns
from llmops_kernel.store.diff.files import Difference, value_text
from llmops_kernel.store.diff.runs import RunDiff
from llmops_kernel.store.journal.summary import FigureValue
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.store import RunStore
from llmops_kernel.views import format as fmt
from llmops_kernel.views.comparison.matrix import ComparedRun, matrix_of
from llmops_kernel.views.comparison.tables import phase_names, phase_seconds
from llmops_kernel.views.figures import compared_figures, group_of
from llmops_kernel.views.run_text.samples import compared_samples
from llmops_kernel.views.snapshot import elapsed_s

MAX_RUNS = 8


def compare(followers: Followers, refs: Sequence[str], *, base: str | None = None) -> Comparison:
    """Compare runs, oldest first: `base`, without one the oldest, with all others."""
    if not 2 <= len(refs) <= MAX_RUNS:
        raise RequestError(f"compare 2 to {MAX_RUNS} runs, not {len(refs)}", status=422)
    with ExitStack() as stack:
        watched = {w.run.id: w for w in (stack.enter_context(followers.watching(r)) for r in refs)}
        compared = comparison.compare(followers.store, list(watched), base=base)
        ordered = [watched[run_id] for run_id in compared.run_ids]
        for item in ordered:
            stack.enter_context(item.lock)
        rows = [read_row(item, followers.store) for item in ordered]
        position = compared.run_ids.index(compared.base)
        return Comparison(
            runs=[row.model_copy(update={"differs": compared.names[row.run_id]}) for row in rows],
            base=position,
            matrix=_matrix(followers.store, ordered, compared, base=position),
            figures=figures([item.view for item in ordered], base=position),
            differences=[_difference(diff) for diff in compared.diffs],
            samples=compared_samples([item.view for item in ordered]),
            has_rows=comparison.has_rows(followers.store, compared.run_ids),
        )


def _matrix(
    store: RunStore, watched: Sequence[Watched], compared: ComparedRuns, *, base: int
) -> ComparisonMatrix:
    runs = [
        ComparedRun(
            name=compared.names[each.run.id], view=each.view, record=store.record(each.run.id)
        )
        for each in watched
    ]
    return ComparisonMatrix.model_validate(asdict(matrix_of(runs, base=base)))


def figures(views: Sequence[RunView], *, base: int = 0) -> list[ComparedFigure]:
    """Return one entry per figure of at least one run, then the time taken and each phase.

    Changes are from the run at `base`.
    """
    by_run = [{figure.key: figure for figure in compared_figures(view)} for view in views]
    keys = dict.fromkeys(key for values in by_run for key in values)
    compared = [_figure([values.get(key) for values in by_run], base=base) for key in keys]
    elapsed = [elapsed_s(view) for view in views]
    compared.append(_seconds("duration", "speed", elapsed, base=base))
    phases = [phase_seconds(view) for view in views]
    for name in phase_names([("", view) for view in views]):
        took = [values.get(name) for values in phases]
        compared.append(_seconds(name.replace("_", " "), "start", took, base=base))
    return [figure for figure in compared if any(text != fmt.DASH for text in figure.texts)]


def _figure(values: Sequence[FigureValue | None], *, base: int) -> ComparedFigure:
    """Return a figure of all runs; None for a run whose kind does not have it."""
    example = next(value for value in values if value is not None)
    numbers = [None if value is None else value.value for value in values]
    return ComparedFigure(
        label=example.label,
        group=group_of(example),
        texts=[fmt.DASH if value is None else value.text for value in values],
        changes=[fmt.change(number, numbers[base], example.unit) for number in numbers],
    )


def _seconds(
    label: str, group: Literal["speed", "start"], values: Sequence[float | None], *, base: int
) -> ComparedFigure:
    return ComparedFigure(
        label=label,
        group=group,
        texts=[fmt.seconds(value) for value in values],
        changes=[fmt.change(value, values[base], "seconds") for value in values],
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
