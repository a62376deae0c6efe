"""A run's view as the state of its panel: words and formatted numbers, no logic."""

from __future__ import annotations

from collections import Counter
from typing import Any

from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import EvalEvent, FailureEvent, ProgressEvent
from llmops_kernel.planner.verdict import Verdict
from llmops_kernel.store.journal.spans import PhaseSpan
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import STOP_PHASE, Progress, RunView
from llmops_kernel.store.journal.whole_run import TimeLeft
from llmops_kernel.store.record import RunRecord
from llmops_kernel.views import format as fmt
from llmops_kernel.views.columns import columns_of, curve_of, run_columns
from llmops_kernel.views.figures import live_figures
from llmops_kernel.views.panel import (
    PanelBar,
    PanelCurve,
    PanelFailure,
    PanelFigure,
    PanelOutput,
    PanelSamples,
    PanelState,
    PanelTable,
    PanelTracker,
    PanelWarning,
    PanelWaterfall,
)
from llmops_kernel.views.plan import memory_bars
from llmops_kernel.views.profile import panel_profiles
from llmops_kernel.views.samples import sample_history
from llmops_kernel.views.state_text import name_of, shown_outputs, state_text
from llmops_kernel.views.system import system_parts
from llmops_kernel.views.waterfall import panel_losses, waterfall_of

_LONG_S = 10.0
_WHY = {
    "runtime_env": "the node gets the run's files and starts its process",
    "supervisor": "the node starts the run's process",
    "batch_search": "workers load the model to try sizes; later runs of these settings do not",
    "workers": "each process loads PyTorch where no fork server is ready",
    "hub": "the model or data set is not on this machine",
    "compile": "later runs on this machine do without",
}
"""Why a phase may take long, by its name."""
_ASK = "`llmops status` says whether the cluster is busy and its fork server ready"
_OF_THE_CLUSTER = ("pending", "runtime_env", "supervisor", "workers")
"""Phases that wait for processes of the cluster."""


def snapshot(
    view: RunView,
    record: RunRecord,
    *,
    now_s: float,
    title: str = "",
    verdict: Verdict | None = None,
) -> PanelState:
    """Return everything that the panel shows but the rows of its charts and the log."""
    return PanelState(
        **_about(record, title=title),
        state=view.state,
        attempt=view.attempt,
        ended=view.is_terminal,
        no_steps=view.is_terminal and not view.rows,
        state_text="" if view.is_terminal else state_text(view),
        message=view.message,
        remedy=view.remedy,
        progress=view.progress.fraction if view.progress else None,
        progress_text=progress_text(view),
        eta_text=eta_text(view, now_s=now_s),
        waiting_text=waiting_text(view, now_s=now_s),
        figures=[PanelFigure(label=f.label, value=f.text, hint=f.hint) for f in live_figures(view)],
        columns=run_columns(columns_of(view)),
        curve=curve_of(view)[0],
        waterfall=waterfall(view, now_s=now_s),
        losses=panel_losses(waterfall_of(view), verdict),
        memory=memory_of(view),
        processes=processes_text(view),
        evals=[*eval_points(view)] if isinstance(view, TrainingView) else None,
        eval_curves=eval_curves(view),
        eval_rows=eval_rows(view),
        samples=sample_table(view, most=SAMPLE_PAGE),
        members=member_table(view),
        saves=kind_named(view.kind).saves,
        warnings=warnings(view),
        restarts=[restart_text(r.from_step, r.cause, r.failures_left) for r in view.restarts],
        restart_steps=[restart.from_step for restart in view.restarts],
        nan_since=view.nan_since if isinstance(view, TrainingView) else None,
        every_row=view.stride == 1,
        stride=view.stride,
        **_results(view),
        profiles=panel_profiles(view),
        **system_parts(view),
    )


def _about(record: RunRecord, *, title: str) -> dict[str, Any]:
    """Return the fields that come from the record alone."""
    return {
        "run_id": record.run_id,
        "name": record.name,
        "title": name_of(record, title=title),
        "cluster": record.cluster,
        "what": describe(record),
        "kind": record.kind,
    }


def memory_of(view: RunView) -> list[PanelBar]:
    """Return bars of planned and measured memory; none where one of them is not known."""
    if not isinstance(view, TrainingView) or view.start is None:
        return []
    return memory_bars(view.start.planned, view.peak_memory_bytes)


def _results(view: RunView) -> dict[str, Any]:
    """Return the fields of the state that say what came of the run."""
    outputs = [
        PanelOutput(what=output.label, path=output.path, size=fmt.byte_size(output.size_bytes))
        for output in shown_outputs(view.outputs)
    ]
    trackers = [
        PanelTracker(name=event.name, url=event.url, path=event.path) for event in view.trackers
    ]
    failures = [failure(event) for event in view.failures]
    return {"failures": failures, "outputs": outputs, "trackers": trackers}


def describe(record: RunRecord) -> str:
    """Return one line about what runs; empty for a kind without one."""
    return kind_named(record.kind).describe(record)


def progress_text(view: RunView) -> str:
    """`step 40 of 225`, `1,200 of 5,000 rows`; empty for an ended run that reported nothing."""
    progress = view.progress
    if progress is None:
        has_steps = isinstance(view, TrainingView)
        waiting = "before the first step" if has_steps else "no progress yet"
        return "" if view.is_terminal else waiting
    return _count_text(view, progress) + _origin_text(view)


def _count_text(view: RunView, progress: Progress) -> str:
    if progress.unit != "steps":
        total = "" if progress.total is None else f" of {progress.total:,}"
        return f"{progress.done:,}{total} {progress.unit}"
    return fmt.step_of(view.last_step, progress.total)


def _origin_text(view: RunView) -> str:
    """Which attempt the progress comes from, until the newest one reports its own."""
    if not view.is_outdated:
        return ""
    if view.reported_by == view.attempt:
        return " (before the restart)"
    return f" (attempt {view.reported_by})"


def eta_text(view: RunView, *, now_s: float) -> str:
    if view.is_terminal:
        took_s = elapsed_s(view)
        return "" if took_s is None else f"duration {fmt.seconds(took_s)}"
    return left_text(view.time_left(now_s))


def left_text(left: TimeLeft | None) -> str:
    """`about 2 min left`; `at least` while something is to come that was not measured yet."""
    if left is None:
        return ""
    return f"{'at least' if left.is_least else 'about'} {fmt.seconds(left.seconds)} left"


def waiting_text(view: RunView, *, now_s: float | None = None) -> str:
    """Return what the run does while there is no curve yet; after 10 seconds also since when."""
    if view.rows and not view.is_outdated:
        return ""
    if view.is_terminal:
        return "" if view.rows else kind_named(view.kind).no_progress
    if view.state == "QUEUED":  # What for stands in `state_text`.
        return "Waiting for resources…"
    if view.state == "RESTARTING":
        return "Restarting…"
    running = [span for span in view.phases() if span.end_s is None]
    if not running:
        return "Waiting for the first event of this run…"
    words = f"{phase_words(view, running[-1].name)}…"
    if now_s is None or now_s - running[-1].begin_s < _LONG_S:
        return words
    so_far = f"{fmt.seconds(now_s - running[-1].begin_s)} so far"
    name = running[-1].name
    told = (view.cluster_says or _ASK) if name in _OF_THE_CLUSTER else ""
    parts = [so_far, running[-1].detail, _WHY.get(name, ""), told]
    return f"{words} ({'; '.join(filter(None, parts))})"


def phase_words(view: RunView, name: str) -> str:
    """What a run does in a phase, as its kind words it: "Loading the model"."""
    return kind_named(view.kind).words.get(name, name.replace("_", " "))


def evals_of(view: RunView) -> list[EvalEvent]:
    """Evaluations, for a kind that has any."""
    return view.evals if isinstance(view, TrainingView) else []


def eval_points(view: RunView) -> list[tuple[int, float]]:
    """Return (step, evaluation loss) that a chart can draw: JSON has no NaN."""
    points = [(e.step, e.metrics.get("eval_loss")) for e in evals_of(view)]
    return [(step, loss) for step, loss in points if loss is not None and fmt.known(loss)]


def eval_curves(view: RunView) -> list[PanelCurve]:
    """Return the points of each evaluation metric but the loss, which stands in `eval_points`."""
    points: dict[str, list[tuple[float, float]]] = {}
    for event in evals_of(view):
        for name, value in event.metrics.items():
            if name != "eval_loss" and fmt.known(value):
                points.setdefault(name, []).append((event.step, value))
    return [
        PanelCurve(name=name, label=_metric_label(name), points=curve)
        for name, curve in points.items()
    ]


def _metric_label(name: str) -> str:
    return name.removeprefix("eval_").replace("_", " ")


def eval_rows(view: RunView) -> PanelTable:
    """Return one row per evaluation and one column per metric, without `eval_` in the names."""
    names = list(dict.fromkeys(name for e in evals_of(view) for name in e.metrics))
    return PanelTable(
        columns=["step", *map(_metric_label, names)],
        rows=[
            [f"{e.step:,}", *(fmt.number(e.metrics.get(name)) for name in names)]
            for e in evals_of(view)
        ],
    )


def failure(event: FailureEvent) -> PanelFailure:
    where = f"{event.file}:{event.line}" if event.file and event.line else event.file
    ranks = event.ranks
    who = "" if not ranks else f"rank{'s' if len(ranks) > 1 else ''} {_ranges(ranks)}"
    return PanelFailure(
        error=event.error,
        message=event.message,
        remedy=event.remedy,
        ranks=who,
        where=where,
        traceback=event.traceback.strip(),
    )


def _ranges(ranks: tuple[int, ...]) -> str:
    """`0-3, 7` for (0, 1, 2, 3, 7)."""
    groups: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if groups and rank == groups[-1][-1] + 1:
            groups[-1].append(rank)
        else:
            groups.append([rank])
    return ", ".join(str(g[0]) if len(g) == 1 else f"{g[0]}-{g[-1]}" for g in groups)


def warnings(view: RunView) -> list[PanelWarning]:
    """Each text once, with how often it was reported."""
    counts = Counter((w.message, w.remedy) for w in view.warnings)
    return [
        PanelWarning(message=message, remedy=remedy, times=times)
        for (message, remedy), times in counts.items()
    ]


def restart_text(from_step: int, cause: str, failures_left: int | None) -> str:
    since = f"from step {from_step:,}" if from_step else "from the beginning"
    left = "" if failures_left is None else f" ({failures_left} more allowed)"
    return f"Restarted {since}: {cause}{left}"


def waterfall(view: RunView, *, now_s: float) -> PanelWaterfall:
    """Start-up phases against a common scale, and what came later as a list."""
    startup, later = split_phases(view)
    rest = [f"{name}: {text}" for name, text in later_totals(later, now_s=now_s)]
    total = fmt.seconds(view.submit_to_first_step_s)
    first = first_result(view)
    if not startup:
        return PanelWaterfall(rows=[], later=rest, total=total, first=first)
    begin_s = min(span.begin_s for span in startup)
    scale_s = max(max(until_s(span, now_s=now_s) for span in startup) - begin_s, 1e-9)
    rows = [
        PanelBar(
            name=span.name.replace("_", " "),
            detail=f"cut off {span.detail}".strip() if span.interrupted else span.detail,
            left=(span.begin_s - begin_s) / scale_s,
            width=(until_s(span, now_s=now_s) - span.begin_s) / scale_s,
            text=fmt.seconds(until_s(span, now_s=now_s) - span.begin_s),
            running=span.end_s is None,
            interrupted=span.interrupted,
        )
        for span in startup
    ]
    return PanelWaterfall(rows=rows, later=rest, total=total, first=first)


def first_result(view: RunView) -> str:
    """What the start-up ends with: `first step`, `first rows`."""
    return "".join(kind_named(view.kind).phases[-1:]).replace("_", " ") or "first result"


def processes_text(view: RunView) -> str:
    """`warm; private memory of a worker 296 MiB`, `cold: reason`; empty before any report."""
    warmth = view.warmth
    if warmth is None:
        return ""
    known = sorted(size for size in warmth.private_bytes or () if size is not None)
    if not known:
        return warmth.text
    ends = dict.fromkeys(fmt.byte_size(size) for size in (known[0], known[-1]))
    return f"{warmth.text}; private memory of a worker {' to '.join(ends)}"


def split_phases(view: RunView) -> tuple[list[PhaseSpan], list[PhaseSpan]]:
    """Phases up to the first result, and after it: one an hour later would flatten the bars."""
    spans = [span for span in view.phases() if span.name != STOP_PHASE]
    last = kind_named(view.kind).phases[-1:]
    first = next((s.end_s for s in spans if s.name in last and s.end_s is not None), None)
    if first is None:
        return spans, []
    return [s for s in spans if s.begin_s < first], [s for s in spans if s.begin_s >= first]


def until_s(span: PhaseSpan, *, now_s: float) -> float:
    """Return the end of a bar; a running one grows with the clock."""
    return max(now_s, span.begin_s) if span.end_s is None else span.end_s


def span_text(span: PhaseSpan, *, now_s: float) -> str:
    text = fmt.seconds(until_s(span, now_s=now_s) - span.begin_s)
    return f"{text}, cut off" if span.interrupted else text


def later_totals(spans: list[PhaseSpan], *, now_s: float) -> list[tuple[str, str]]:
    """`("evaluate × 3", "12.0 s")`: phases after the first step, added up by name."""
    totals = []
    for name in dict.fromkeys(span.name for span in spans):
        mine = [span for span in spans if span.name == name]
        label = name.replace("_", " ") + (f" × {len(mine)}" if len(mine) > 1 else "")
        total_s = sum(until_s(span, now_s=now_s) - span.begin_s for span in mine)
        totals.append((label, fmt.seconds(total_s)))
    return totals


def elapsed_s(view: RunView, *, now_s: float | None = None) -> float | None:
    """Return the seconds from the attempt's first phase to its end.

    While it runs those until `now_s`, None without one.
    """
    begin_s, until = began_s(view), view.end.time_s if view.end else now_s
    return None if begin_s is None or until is None else max(0.0, until - begin_s)


def began_s(view: RunView) -> float | None:
    """Return when the attempt's first phase began; None before."""
    return min((span.begin_s for span in view.phases()), default=None)


# --- panel tables ---
# Tables of a run that every kind may have: samples of its answers, and numbers of its members.


SAMPLE_PAGE = 50
"""So many samples are sent at once; a screen asks for the next ones."""
_FIRST = ("row", "prompt", "prediction", "reference")
_LABELS = {"prediction": "answer"}


def sample_table(view: RunView, *, first: int = 0, most: int | None = None) -> PanelSamples:
    """Return the newest samples: one row each, a column for each field of them.

    `most` of them from `first` on; `total` says how many there are.
    """
    event = view.sampled
    if event is None:
        return PanelSamples(at="", columns=[], rows=[], history=[], first=first, total=0)
    samples = event.samples[first:] if most is None else event.samples[first : first + most]
    places = range(first + 1, first + 1 + len(samples))
    shown = [sample.get("row") or f"{place}" for place, sample in zip(places, samples, strict=True)]
    given = dict.fromkeys(name for sample in event.samples for name in sample)
    names = [name for name in _FIRST if name in given]
    names += [name for name in given if name not in names]
    unit = view.progress.unit if view.progress else "steps"
    at = f"at step {event.step:,}" if unit == "steps" else f"after {event.step:,} {unit}"
    if event.answers_s is not None:
        at += f"; all answers were generated in {fmt.seconds(event.answers_s)}"
    return PanelSamples(
        at=at,
        columns=[_LABELS.get(name, name.replace("_", " ")) for name in names],
        rows=[[sample.get(name, fmt.DASH) for name in names] for sample in samples],
        history=sample_history(view, shown),
        first=first,
        total=len(event.samples),
    )


def member_table(view: RunView) -> PanelTable:
    """Return one row a member of a run that works, with the columns that at least one has."""
    if view.is_terminal:
        return PanelTable(columns=[], rows=[])  # Its rates would be those of its last seconds.
    numbers = {name: ProgressEvent(done=0, values=values) for name, values in view.members.items()}
    rows: dict[str, list[str]] = {name: [name] for name in numbers}
    labels = [""]
    # The first column is the x axis of the charts: how far the run as a whole is.
    for column in kind_named(view.kind).all_columns(view)[1:]:
        found = {name: column.value(event) for name, event in numbers.items()}
        if any(value is not None for value in found.values()):
            labels.append(column.label)
            for name, value in found.items():
                rows[name].append(fmt.by_unit(value, column.unit))
    return PanelTable(columns=labels, rows=list(rows.values()))
