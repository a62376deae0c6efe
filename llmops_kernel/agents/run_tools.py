"""The tools that read runs: lists, one run, curves, comparisons, logs, samples, scores, news."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from llmops_kernel import api
from llmops_kernel.agents import answers
from llmops_kernel.agents.reading import Run
from llmops_kernel.errors import LLMOpsError, RunError
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.services.backend import current
from llmops_kernel.services.scoring.runs import scores_of
from llmops_kernel.services.types import FailureEvent, RunDiff, RunSummary, RunView
from llmops_kernel.store.run_lines import last_lines
from llmops_kernel.views.columns import columns_of, points_of
from llmops_kernel.views.figures import figures
from llmops_kernel.views.samples import choose_samples, sample_records
from llmops_kernel.views.score_comparison import MetricChange
from llmops_kernel.views.summary import summarise

MOST_POINTS = 50
MOST_RUNS = 50
MOST_LOG = 20_000
MOST_WAIT_S = 300.0
_POLL_S = 0.5


def runs(
    where: Annotated[
        str, Field(description="Such as `eval_loss < 0.4 and method.r == 8 and 'best' in tags`.")
    ] = "",
    sort: Annotated[str, Field(description="Columns; a leading minus: the largest first.")] = "",
    columns: Annotated[list[str], Field(max_length=20)] = [],  # noqa: B006
    cluster: str = "",
    limit: Annotated[int, Field(ge=1, le=MOST_RUNS)] = 20,
) -> answers.Runs:
    """List runs, the newest first, with their figures; filter and sort by any field.

    A run whose value is unknown never matches. `columns` are further values to return. `query`
    answers more general questions, in SQL.
    """
    only = cluster or None
    listing = api.runs(where, sort=sort, columns=columns or None, cluster=only, limit=limit)
    values = listing.records() if columns else [{} for _ in listing]
    by_id = {summary.run_id: summary for summary in listing.summaries}
    lines = [
        run_line(by_id[run.id], run, extra)
        for run, extra in zip(listing, values, strict=True)
        if run.id in by_id
    ]
    left_out = 0
    if len(listing) == limit:
        left_out = len(api.runs(where, columns=[], cluster=only, limit=None)) - limit
    return answers.Runs(runs=tuple(lines), left_out=max(0, left_out))


def run_line(
    summary: RunSummary, run: api.Run, values: dict[str, Any] | None = None
) -> answers.RunLine:
    """Return a run's line of a list."""
    notes, mark = run.notes, run.record.agent
    progress = summary.progress
    return answers.RunLine(
        run=summary.run_id,
        kind=summary.kind,
        name=summary.name,
        state=summary.state,
        cluster=summary.cluster,
        created_s=summary.created_s,
        progress=None if progress is None else progress.fraction,
        figures={figure.key: figure.value for figure in summary.figures},
        message=summary.message or summary.reason,
        title=notes.title,
        tags=notes.tags,
        group=notes.group,
        agent=mark.name if mark else "",
        values={name: value for name, value in (values or {}).items() if name != "run"},
    )


def show_run(run: Run = "last") -> answers.RunDetail:
    """Show a run: why it failed first, then its state, figures, warnings, phases and config."""
    target = api.attach(run)
    with closing(target):
        view, record = target.view, target.record
        line = run_line(summarise(record, view, target.attempts), target)
        spans, fields = view.phases(), _fields(record.config)
        return answers.RunDetail(
            run=target.id,
            state=target.state,
            cause=cause_of(view),
            message=view.message,
            remedy=view.remedy,
            line=line,
            figures=tuple(
                answers.Figure(**figure.model_dump(include={*answers.Figure.model_fields}))
                for figure in figures(view)
            ),
            warnings=tuple(_warned(event) for event in reversed(view.warnings)),
            phases=tuple(
                answers.Phase(name=span.name, took_s=span.duration_s, detail=span.detail)
                for span in spans
            ),
            attempt=view.attempt,
            outputs=tuple(f"{event.what}: {event.path}" for event in view.outputs),
            checkpoint=view.checkpoints[-1].path if view.checkpoints else None,
            note=target.note,
            user=record.user,
            acts=tuple(answers.Act(**act.model_dump()) for act in target.acts),
            overrides=record.overrides,
            config=tuple({"path": path, "value": value} for path, value in fields),
            curves=tuple(column.name for column in columns_of(view)[1:]),
        )


def _fields(config: Any, path: str = "") -> list[tuple[str, Any]]:
    if not isinstance(config, dict) or not config:
        return [(path, config)] if path else []
    return [
        field
        for name, value in config.items()
        for field in _fields(value, f"{path}.{name}" if path else str(name))
    ]


def cause_of(view: RunView) -> answers.Failure | None:
    """Return why a run has failed; None where it has not, or only its last words are known."""
    failures: list[FailureEvent] = [e for e in view.failures if e.attempt == view.attempt]
    if not failures or view.state not in ("FAILED", "RESTARTING"):
        return None
    names = answers.Failure.model_fields
    values = {name: getattr(failures[-1], name) for name in names}
    return answers.Failure(**{**values, "traceback": values["traceback"][-answers.MOST_TEXT :]})


def _warned(event: Any) -> answers.Warned:
    return answers.Warned(message=event.message, remedy=event.remedy)


def curve(
    run: Run = "last",
    name: Annotated[str, Field(description="One of the `curves` of `show_run`.")] = "loss",
) -> answers.Curve:
    """Return a figure over the steps of a run, in at most 50 points, with its extremes."""
    target = api.attach(run)
    with closing(target):
        view = target.view
        column = next((each for each in columns_of(view) if each.name == name), None)
        if column is None:
            names = ", ".join(each.name for each in columns_of(view)[1:][:50])
            raise RunError(f"Run {target.id} has no curve {name!r}", remedy=f"use one of: {names}")
        points = points_of(view, name)
    known = [point for point in points if math.isfinite(point[1])]
    lowest = min(known, key=lambda point: point[1], default=None)
    highest = max(known, key=lambda point: point[1], default=None)
    shown = points
    if len(points) > MOST_POINTS:
        step = (len(points) - 1) / (MOST_POINTS - 1)
        shown = [points[round(number * step)] for number in range(MOST_POINTS)]
    return answers.Curve(
        run=target.id,
        name=name,
        unit=column.unit,
        points=tuple(map(_point, shown)),
        lowest=_point(lowest) if lowest else None,
        highest=_point(highest) if highest else None,
        left_out=len(points) - len(shown),
    )


def _point(point: tuple[float, float]) -> answers.Point:
    return answers.Point(x=point[0], value=point[1])


def compare_runs(
    runs: Annotated[list[str], Field(min_length=2, max_length=10)],
    base: Annotated[str, Field(description="Compared with; default: the oldest.")] = "",
) -> answers.Compared:
    """Compare runs: what differs in config, code and environment, and their figures.

    Runs that differ only in their seeds have a line of means with standard deviations. Of two
    scorings of the same rows, metrics have 95 % intervals.
    """
    compared = api.compare(*runs, base=base or None)
    ids = [run.id for run in compared.runs]
    matrix = compared.matrix
    lines = tuple(
        answers.ComparedLine(
            runs=tuple(ids[index] for index in line.runs),
            label=line.label,
            is_base=line.is_base,
            figures=_cells(matrix.figures, [cell.text for cell in line.cells]),
            changes=_cells(matrix.figures, [cell.change for cell in line.cells]),
            note=line.note,
        )
        for line in matrix.lines
    )
    metrics: tuple[answers.MetricLine, ...] = ()
    note = ""
    if compared.has_rows:
        try:
            metrics = tuple(
                answers.MetricLine(**_metric(change), is_clear=change.is_clear)
                for change in compared.scores.metrics
            )
        except LLMOpsError as error:
            note = str(error)
    return answers.Compared(
        base=compared.base.id,
        lines=lines,
        differences=tuple(_difference(diff) for diff in compared.diffs),
        metrics=metrics,
        note=note,
    )


def _metric(change: MetricChange) -> dict[str, Any]:
    values = asdict(change)
    return {name: values[name] for name in answers.MetricLine.model_fields if name in values}


def _cells(names: Sequence[str], texts: Sequence[str]) -> dict[str, str]:
    return {name: text for name, text in zip(names, texts, strict=True) if text}


def _difference(diff: RunDiff) -> answers.Difference:
    def changes(rows: Sequence[Any]) -> tuple[answers.Change, ...]:
        return tuple(
            answers.Change(path=path, before=str(before), after=str(after))
            for path, before, after in rows
        )

    return answers.Difference(
        run=diff.b,
        config=changes(diff.config),
        environment=changes(diff.environment),
        code=tuple(
            answers.CodeChange(
                path=change.path,
                kind=change.kind,
                difference=change.unified_diff if change.is_code else change.counts,
            )
            for change in diff.code
        ),
    )


def log(
    run: Run = "last",
    lines: Annotated[int, Field(ge=1, le=2000)] = 200,
    attempt: Annotated[int | None, Field(description="Default: the newest.")] = None,
) -> answers.Log:
    """Return why a run failed, then the last lines that it wrote, at most 20,000 characters."""
    target = api.attach(run)
    with closing(target):
        whole = target.log(attempt)
        text = answers.cleaned(last_lines(whole, lines, all_lines=False), most=None)
        shown = text[-MOST_LOG:]
        size = max(whole.size, len(text))
        return answers.Log(
            run=target.id,
            state=target.state,
            cause=cause_of(target.view),
            text=shown,
            left_out=size - len(shown),
        )


def samples(
    run: Run = "last",
    row: Annotated[str | None, Field(description="Only this row, at all steps.")] = None,
    step: int | None = None,
    limit: Annotated[int, Field(ge=1, le=50)] = 10,
) -> answers.Samples:
    """Return what the model answered at the evaluations of a run, the newest answer of each row."""
    target = api.attach(run)
    with closing(target):
        chosen = choose_samples(target.view, row=row, step=step)
    records = list(sample_records(chosen))
    if row is None and step is None:
        records = [{**sampled.newest, "step": max(sampled.answers)} for sampled in chosen]
    return answers.Samples(
        run=target.id,
        samples=tuple(records[:limit]),
        left_out=max(0, len(records) - limit),
    )


def scores(run: Run = "last") -> answers.Scores:
    """Return the metrics of a scoring with 95 % intervals over rows, or of the last evaluation."""
    target = api.attach(run)
    with closing(target):
        view, note = target.view, ""
        last = view.evaluations[-1] if view.evaluations else None
        known = {} if last is None else last.metrics
        lines = {
            name: answers.Score(name=name, value=value, rows=last.num_rows or None)
            for name, value in known.items()
            if last is not None
        }
        if kind_named(target.record.kind).output_comparison:
            try:
                measured = scores_of(current().store, target.record)
                lines |= {
                    name: answers.Score(name=name, **asdict(score))
                    for name, score in measured.items()
                }
            except LLMOpsError as error:
                note = str(error)
        return answers.Scores(
            run=target.id, state=target.state, scores=tuple(lines.values()), note=note
        )


# --- Wait for news ---


async def wait(
    run: Run = "last",
    seen: Annotated[str, Field(description="`seen` of the last `wait` or empty.")] = "",
    until_step: Annotated[
        int | None, Field(description="Return at this step too; without it steps are no news.")
    ] = None,
    timeout_s: Annotated[float, Field(ge=0, le=MOST_WAIT_S)] = 60.0,
) -> answers.News:
    """Wait until something is new of a run: its state, a step, an evaluation, a warning, a failure.

    Returns at once if the run has ended, or has news since `seen`; and after `timeout_s` without
    any. Better than asking again and again.
    """
    target = api.attach(run)
    until_s = time.monotonic() + timeout_s
    try:
        first = seen or _seen(target, until_step)
        while True:
            now = await asyncio.to_thread(_seen, target, until_step)
            is_over = target.has_ended or time.monotonic() >= until_s
            if now != first or is_over:
                return _news(target, _changed(first, now), now)
            await asyncio.sleep(_POLL_S)
    finally:
        target.close()


_NEWS = ("state", "evaluation", "warning", "failure", "step")


def _seen(run: api.Run, until_step: int | None) -> str:
    view = run.view
    has_step = until_step is not None and (view.last_step or 0) >= until_step
    counts = (len(view.evaluations), len(view.warnings), len(view.failures), int(has_step))
    return "/".join([run.state, *map(str, counts)])


def _changed(first: str, now: str) -> tuple[str, ...]:
    before, after = first.split("/"), now.split("/")
    before += [""] * (len(_NEWS) - len(before))
    return tuple(n for n, a, b in zip(_NEWS, before, after, strict=False) if a != b)


def _news(run: api.Run, changed: tuple[str, ...], seen: str) -> answers.News:
    view = run.view
    progress, last = view.progress, view.evaluations[-1:]
    return answers.News(
        run=run.id,
        state=run.state,
        news=changed,
        seen=seen,
        has_ended=run.has_ended,
        last_step=view.last_step,
        total=None if progress is None else progress.total,
        progress=None if progress is None else progress.fraction,
        evaluation=last[0].metrics if last else {},
        warning=_warned(view.warnings[-1]) if view.warnings else None,
        cause=cause_of(view),
        message=view.message,
        remedy=view.remedy,
    )
