"""Several runs side by side: figures with their ratios, and what differs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

from llmops_kernel.api.run_handle import Run
from llmops_kernel.runs.diff import Difference, RunDiff, diff_runs
from llmops_kernel.runs.view import RunView
from llmops_kernel.server.base import RequestError
from llmops_kernel.server.followers import Followers
from llmops_kernel.server.run_rows import read_row
from llmops_kernel.server.wire.runs import (
    Change,
    CodeChange,
    ComparedFigure,
    Comparison,
    RunDifference,
)
from llmops_kernel.widgets import format as fmt
from llmops_kernel.widgets.compare import phase_names, phase_seconds
from llmops_kernel.widgets.snapshot import elapsed_s, last_eval_loss

MAX_RUNS = 8

Value = Callable[[RunView], float | None]
Words = Callable[[float | None], str]

_FIGURES: tuple[tuple[str, Value, Words], ...] = (
    ("loss", lambda view: view.loss, fmt.loss),
    ("eval loss", last_eval_loss, fmt.loss),
    ("MFU", lambda view: view.mfu, fmt.percent),
    ("tokens/s", lambda view: view.tokens_per_second, fmt.rate),
    ("step time", lambda view: view.step_time_s, fmt.step_time),
    ("peak memory", lambda view: view.peak_memory_bytes, fmt.byte_size),
    ("steps", lambda view: view.last_step, lambda value: fmt.number(value)),
    ("took", elapsed_s, fmt.seconds),
    ("submit to first step", lambda view: view.submit_to_first_step_s, fmt.seconds),
)


def compare(followers: Followers, refs: Sequence[str], *, base: str | None = None) -> Comparison:
    """The older run first; differences from each to the next, or from `base` to all others."""
    if not 2 <= len(refs) <= MAX_RUNS:
        raise RequestError(f"compare 2 to {MAX_RUNS} runs, not {len(refs)}", status=422)
    with ExitStack() as stack:
        watched = {w.run.id: w for w in (stack.enter_context(followers.watching(r)) for r in refs)}
        ordered = sorted(watched.values(), key=lambda item: item.run.record.created_s)
        if len(ordered) < 2:
            raise RequestError("a run cannot be compared with itself", status=422)
        for item in ordered:
            stack.enter_context(item.lock)
        runs = [item.run for item in ordered]
        return Comparison(
            runs=[read_row(item, followers.store) for item in ordered],
            figures=figures([item.view for item in ordered]),
            differences=[
                _told(diff_runs(followers.store, a.id, b.id)) for a, b in _pairs(runs, base)
            ],
        )


def _pairs(runs: Sequence[Run], base: str | None) -> list[tuple[Run, Run]]:
    if base is None:
        return list(pairwise(runs))
    chosen = next((run for run in runs if run.id == base), None)
    if chosen is None:
        raise RequestError(f"{base!r} is none of the compared runs", status=422)
    return [(chosen, run) for run in runs if run is not chosen]


def figures(views: Sequence[RunView]) -> list[ComparedFigure]:
    found = [_figure(label, [value(v) for v in views], words) for label, value, words in _FIGURES]
    names = sorted({name for view in views for name in view.best_metrics} - {"eval_loss"})
    for name in names:
        best = [view.best_metrics.get(name) for view in views]
        label = f"best {name.removeprefix('eval_').replace('_', ' ')}"
        found.append(_figure(label, best, fmt.number))
    phases = [phase_seconds(view) for view in views]
    for name in phase_names([("", view) for view in views]):
        took = [mine.get(name) for mine in phases]
        found.append(_figure(f"phase {name.replace('_', ' ')}", took, fmt.seconds))
    return [figure for figure in found if any(text != fmt.DASH for text in figure.texts)]


def _figure(label: str, values: Sequence[float | None], words: Words) -> ComparedFigure:
    first = values[0] if fmt.known(values[0]) else None
    return ComparedFigure(
        label=label,
        texts=[words(value) for value in values],
        ratios=[
            value / first if first and value is not None and fmt.known(value) else None
            for value in values
        ],
    )


def _told(diff: RunDiff) -> RunDifference:
    return RunDifference(
        before=diff.a,
        after=diff.b,
        config=[_change(row) for row in diff.config],
        environment=[_change(row) for row in diff.environment],
        code=[
            CodeChange(path=change.path, kind=change.kind, unified_diff=change.unified_diff)
            for change in diff.code
        ],
    )


def _change(row: Difference) -> Change:
    path, before, after = row
    return Change(path=path, before=_text(before), after=_text(after))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
