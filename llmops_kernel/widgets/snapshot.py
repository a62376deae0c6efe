"""A run's view as the JSON that the panel shows: words and formatted numbers, no logic left."""

from __future__ import annotations

from collections import Counter
from typing import Any

from llmops_kernel.metrics.events import PHASES, FailureEvent
from llmops_kernel.runs.record import RunRecord
from llmops_kernel.runs.spans import PhaseSpan
from llmops_kernel.runs.view import STOP_PHASE, RunView
from llmops_kernel.widgets import format as fmt

Json = dict[str, Any]

_WAITING = {
    "snapshot": "Packing the workspace",
    "upload": "Uploading code that the cluster does not have yet",
    "pending": "Waiting for Ray to start the job",
    "runtime_env": "Preparing the runtime environment",
    "supervisor": "Starting the job's supervisor",
    "driver": "Starting the driver",
    "workers": "Starting the workers",
    "imports": "Importing the training stack",
    "process_group": "Connecting the workers",
    "data": "Preparing the data",
    "model_load": "Loading the model",
    "engine": "Building optimizer and engine",
    "first_step": "Running the first step",
}


def snapshot(view: RunView, record: RunRecord, *, now_s: float) -> Json:
    """Everything but the step columns and the log."""
    return {
        "run_id": record.run_id,
        "name": record.name,
        "cluster": record.cluster,
        "what": describe(record),
        "state": view.state,
        "attempt": view.attempt,
        "ended": view.is_terminal,
        "no_steps": view.is_terminal and not view.steps,
        "message": view.message,
        "remedy": view.remedy,
        "progress": view.progress,
        "progress_text": progress_text(view),
        "eta_text": eta_text(view, now_s=now_s),
        "waiting_text": waiting_text(view),
        "figures": [{"label": a, "value": b, "hint": c} for a, b, c in figures(view)],
        "waterfall": waterfall(view, now_s=now_s),
        "processes": processes_text(view),
        "evals": [list(point) for point in eval_points(view)],
        "eval_rows": eval_rows(view),
        "warnings": warnings(view),
        "restarts": [restart_text(r.from_step, r.cause, r.failures_left) for r in view.restarts],
        "failures": [failure(f) for f in view.failures],
        "outputs": [
            {"what": o.what.replace("_", " "), "path": o.path, "size": fmt.byte_size(o.size_bytes)}
            for o in view.outputs
        ],
    }


def describe(record: RunRecord) -> str:
    """`SmolLM2-135M-Instruct · lora · ddp x 2`; parts that the config lacks are left out."""
    config = record.config
    model = _section(config, "model").get("id")
    method = _section(config, "method").get("type")
    parallelism = _section(config, "parallelism")
    strategy, workers = parallelism.get("strategy"), parallelism.get("num_workers")
    spread = f"{strategy} × {workers}" if strategy and workers else strategy
    return " · ".join(str(part) for part in (model, method, spread) if part)


def _section(config: Json, name: str) -> Json:
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def progress_text(view: RunView) -> str:
    if view.last_step is None and view.total_steps is None:
        return "" if view.is_terminal else "before the first step"
    return fmt.step_of(view.last_step, view.total_steps)


def eta_text(view: RunView, *, now_s: float) -> str:
    if view.is_terminal:
        took_s = elapsed_s(view)
        return "" if took_s is None else f"took {fmt.seconds(took_s)}"
    left_s = view.eta_s(now_s)
    return "" if left_s is None else f"about {fmt.seconds(max(left_s, 0.0))} left"


def waiting_text(view: RunView) -> str:
    """What is going on while there is no curve yet."""
    if view.steps:
        return ""
    if view.is_terminal:
        return "This run ended before its first step."
    running = [span for span in view.phases() if span.end_s is None]
    if not running:
        return "Waiting for the first event of this run…"
    return f"{_WAITING.get(running[-1].name, running[-1].name.replace('_', ' '))}…"


def figures(view: RunView) -> list[tuple[str, str, str]]:
    """(label, value, hint) in the order of importance."""
    last = view.steps[-1] if view.steps else None
    start = view.start
    peak = start.peak_flops if start else None
    basis = f"{fmt.flops(peak)} a worker, {start.peak_source}" if start and peak else ""
    return [
        ("loss", fmt.loss(view.loss), "training loss of the last step"),
        ("eval loss", fmt.loss(last_eval_loss(view)), "loss on the held-out rows"),
        (
            "MFU",
            fmt.percent(view.mfu),
            f"model FLOPs utilization of {basis}"
            if basis
            else "model FLOPs utilization; the device's peak is not known",
        ),
        ("tokens/s", fmt.rate(view.tokens_per_second), "all workers together, without padding"),
        ("step time", fmt.step_time(view.step_time_s), "median of the last steps"),
        ("peak memory", fmt.byte_size(view.peak_memory_bytes), "of one device, by its allocator"),
        (
            "host memory",
            fmt.byte_size(last.host_memory_bytes if last else None),
            "resident memory of the first worker's process",
        ),
        ("learning rate", fmt.exponent(last.learning_rate if last else None), "of the last step"),
    ]


def eval_points(view: RunView) -> list[tuple[int, float]]:
    """(step, evaluation loss) that a chart can draw; JSON has no NaN either."""
    found = [(e.step, e.metrics.get("eval_loss")) for e in view.evals]
    return [(step, loss) for step, loss in found if loss is not None and fmt.known(loss)]


def last_eval_loss(view: RunView) -> float | None:
    losses = [e.metrics["eval_loss"] for e in view.evals if "eval_loss" in e.metrics]
    return losses[-1] if losses else None


def eval_rows(view: RunView) -> Json:
    """One row an evaluation, one column a metric, `eval_` left out of the names."""
    names = list(dict.fromkeys(name for e in view.evals for name in e.metrics))
    return {
        "columns": ["step", *(name.removeprefix("eval_").replace("_", " ") for name in names)],
        "rows": [
            [f"{e.step:,}", *(fmt.number(e.metrics.get(name)) for name in names)]
            for e in view.evals
        ],
    }


def failure(event: FailureEvent) -> Json:
    where = f"{event.file}:{event.line}" if event.file and event.line else event.file
    ranks = event.ranks
    who = "" if not ranks else f"rank{'s' if len(ranks) > 1 else ''} {_ranges(ranks)}"
    return {
        "error": event.error,
        "message": event.message,
        "remedy": event.remedy,
        "ranks": who,
        "where": where,
        "traceback": event.traceback.strip(),
    }


def _ranges(ranks: tuple[int, ...]) -> str:
    """`0-3, 7` for (0, 1, 2, 3, 7)."""
    groups: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if groups and rank == groups[-1][-1] + 1:
            groups[-1].append(rank)
        else:
            groups.append([rank])
    return ", ".join(str(g[0]) if len(g) == 1 else f"{g[0]}-{g[-1]}" for g in groups)


def warnings(view: RunView) -> list[Json]:
    """Each text once, with how often it came."""
    counts = Counter((w.message, w.remedy) for w in view.warnings)
    return [
        {"message": message, "remedy": remedy, "times": times}
        for (message, remedy), times in counts.items()
    ]


def restart_text(from_step: int, cause: str, failures_left: int | None) -> str:
    since = f"from step {from_step:,}" if from_step else "from the beginning"
    left = "" if failures_left is None else f" ({failures_left} more allowed)"
    return f"Restarted {since}: {cause}{left}"


def waterfall(view: RunView, *, now_s: float) -> Json:
    """Start-up phases against a common scale, and what came later as a list."""
    startup, later = split_phases(view.phases())
    rest = [f"{name}: {text}" for name, text in later_totals(later, now_s=now_s)]
    total = fmt.seconds(view.submit_to_first_step_s)
    if not startup:
        return {"rows": [], "later": rest, "total": total}
    begin_s = min(span.begin_s for span in startup)
    scale_s = max(max(until_s(span, now_s=now_s) for span in startup) - begin_s, 1e-9)
    rows = [
        {
            "name": span.name.replace("_", " "),
            "detail": f"cut off {span.detail}".strip() if span.interrupted else span.detail,
            "left": (span.begin_s - begin_s) / scale_s,
            "width": (until_s(span, now_s=now_s) - span.begin_s) / scale_s,
            "text": fmt.seconds(until_s(span, now_s=now_s) - span.begin_s),
            "running": span.end_s is None,
            "interrupted": span.interrupted,
        }
        for span in startup
    ]
    return {"rows": rows, "later": rest, "total": total}


def processes_text(view: RunView) -> str:
    """`warm; private memory 296 - 312 MiB a worker`, `cold: why`; empty until one has told."""
    warmth = view.warmth
    if warmth is None:
        return ""
    known = sorted(size for size in warmth.private_bytes or () if size is not None)
    if not known:
        return warmth.text
    ends = dict.fromkeys(fmt.byte_size(size) for size in (known[0], known[-1]))
    return f"{warmth.text}; private memory of a worker {' to '.join(ends)}"


def split_phases(spans: list[PhaseSpan]) -> tuple[list[PhaseSpan], list[PhaseSpan]]:
    """Up to the first step, and after it: an evaluation an hour later would flatten the bars."""
    spans = [span for span in spans if span.name != STOP_PHASE]
    first = next((s.end_s for s in spans if s.name == PHASES[-1] and s.end_s is not None), None)
    if first is None:
        return spans, []
    return [s for s in spans if s.begin_s < first], [s for s in spans if s.begin_s >= first]


def until_s(span: PhaseSpan, *, now_s: float) -> float:
    """The end of a bar; a running one grows with the clock."""
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


def elapsed_s(view: RunView) -> float | None:
    """From the attempt's first phase to its end; None while it runs."""
    spans, end = view.phases(), view.end
    if not spans or end is None:
        return None
    return max(0.0, end.time_s - min(span.begin_s for span in spans))
