"""`llmops demo`: the whole loop in one command, with headings."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from llmops_kernel.cli.console import facts, out, plain, table
from llmops_kernel.cli.runs.submit import detached
from llmops_kernel.services.clusters import find
from llmops_kernel.services.demo import (
    BATCH_ROWS,
    CLUSTER,
    EVAL_ROWS,
    SCORE_CONFIG,
    SCORED_ROWS,
    TIME_S,
    Size,
    demo_config,
    rows_for,
    score_config,
    size_for,
    speed_of,
    submit_demo,
    submit_scoring,
)
from llmops_kernel.views import format as fmt

if TYPE_CHECKING:
    from rich.console import Console

    from llmops_kernel.api import Run
    from llmops_kernel.services.demo import Speed
    from llmops_kernel.services.types import RunView, TrainingView


_FEW_ROWS = (f"data.max_eval_rows={EVAL_ROWS}",)
_NO_ROWS = ("evaluation.at_start=false", "evaluation.at_end=false")
"""Shown when the time is short: both models answer held-out rows when they are scored."""
_LOOK_S = 0.2


class Stopwatch:
    """Measures how long each part took, in order."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self._began_s = time.monotonic()

    def lap(self, name: str) -> None:
        now_s = time.monotonic()
        self.parts[name] = now_s - self._began_s
        self._began_s = now_s


class Fit:
    """Sizes the demo to its time, once the run's first steps have shown how fast this machine is.

    Nothing is sized where the user has named the number of steps.
    """

    def __init__(
        self, *, until_s: float, is_free: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._until_s, self._is_free, self._clock = until_s, is_free, clock
        self._speed: Speed | None = None
        self.size: Size | None = None
        self.steps_words = ""
        """What is cut of the run and why; empty where nothing is."""

    def is_too_slow(self, view: RunView) -> bool:
        """Return whether the run has to be submitted again with fewer steps; decided once."""
        if self._is_free and self.size is None:
            self._decide(cast("TrainingView", view))
        return self.size is not None and self.size.again

    def _decide(self, view: TrainingView) -> None:
        speed, steps, last_step = speed_of(view), view.total_steps, view.last_step
        if speed is None or not steps or not last_step or last_step >= steps:
            return
        left_s = self._until_s - self._clock()
        self._speed = speed
        self.size = size_for(speed, left_s=left_s, steps=steps, steps_done=last_step)
        if not self.size.again:
            return
        over_s = self.size.seconds - left_s
        late = f" It cannot do less, and takes {fmt.seconds(over_s)} longer." if over_s > 1 else ""
        self.steps_words = (
            f"This machine takes {fmt.seconds(speed.step_s)} for a step: the run is stopped, and"
            f" submitted again with {self.size.max_steps:,} of its {steps:,} steps, which learn"
            f" less.{late}"
            f" `llmops demo --max-steps {steps}` makes all of them."
        )

    def rows(self) -> tuple[int, str]:
        """Return how many rows there is time to score, and why not all; empty: all."""
        if self._speed is None:
            return SCORED_ROWS, ""
        rows = rows_for(self._speed, left_s=self._until_s - self._clock())
        if rows == SCORED_ROWS:
            return rows, ""
        return rows, (
            f"Each model answers {rows} of {SCORED_ROWS} rows: this machine takes about"
            f" {fmt.seconds(self._speed.batch_s)} for {BATCH_ROWS} answers."
        )


def run_demo(workspace: Path | None, *, max_steps: int | None, time_s: float | None = None) -> int:
    """Start a cluster, prepare the model, train, score, show the result. Return the exit code.

    Without `max_steps` it is sized to `time_s` seconds, by default TIME_S.
    """
    console = out()
    config = demo_config(workspace)
    watch = Stopwatch()
    fit = Fit(until_s=time.monotonic() + (time_s or TIME_S), is_free=max_steps is None)
    _cluster(console)
    watch.lap("cluster")
    _model(console, config)
    watch.lap("model")
    run = _submit(console, config, max_steps=max_steps)
    final = _follow(console, run, leave=fit.is_too_slow)
    if fit.size is not None and fit.size.again:
        run = _submit_again(console, run, config, fit)
        final = _follow(console, run)
    watch.lap("run")
    if final != "SUCCEEDED":
        console.print(f"\nThe run is {final}. See: llmops show {run.id}")
        return 1
    _heading(console, "4  Held-out rows, before and after")
    if fit.steps_words:
        console.print("   left to the scoring, to save time")
    else:
        console.print(before_and_after(cast("TrainingView", run.view)))
    is_scored = score_both(console, run, config, fit=fit)
    watch.lap("scores")
    _result(console, run, watch)
    return 0 if is_scored else 1


def _heading(console: Console, text: str) -> None:
    console.print(f"\n[bold cyan]{text}[/]")


def _cluster(console: Console) -> None:
    from llmops_kernel.cli.console import bring_up
    from llmops_kernel.services.clusters import is_ready

    _heading(console, "1  A Ray cluster that keeps running")
    was_up = is_ready(CLUSTER)
    info = bring_up(CLUSTER)
    state = "already running" if was_up else "started"
    gpus = f", {info.num_gpus:g} GPUs" if info.num_gpus else ""
    cpus = fmt.DASH if info.num_cpus is None else f"{info.num_cpus:g}"
    console.print(
        f"   {state}: {cpus} CPUs{gpus}, dashboard {plain(info.dashboard_url or fmt.DASH)}"
    )


def _model(console: Console, config: Path) -> None:
    """Convert a catalogue model now, with progress, instead of inside the run."""
    from llmops_kernel.services.demo import model_of
    from llmops_kernel.services.models import prepare_model

    model_id = model_of(config)
    _heading(console, f"2  The model: {plain(model_id)}")
    result = prepare_model(model_id, progress=lambda text: console.print(f"   {plain(text)} ..."))
    console.print(f"   {plain(result)}")


def _submit(
    console: Console, config: Path, *, max_steps: int | None, changes: Sequence[str] = _FEW_ROWS
) -> Run:
    from llmops_kernel import api

    _heading(console, f"3  A run: {plain(str(config))}")
    record = submit_demo(config, cluster=find(CLUSTER), max_steps=max_steps, changes=changes)
    run = api.attach(record.run_id)
    console.print(f"   submitted {plain(run.id)}; Ctrl-C stops watching, not the run\n")
    return run


def _submit_again(console: Console, run: Run, config: Path, fit: Fit) -> Run:
    """Stop the run, and submit it with the steps that there is time for."""
    assert fit.size is not None
    console.print(f"\n   {fit.steps_words}", highlight=False)
    run.stop()
    with detached(run.id):
        while not run.has_ended:
            time.sleep(_LOOK_S)
    return _submit(console, config, max_steps=fit.size.max_steps, changes=_NO_ROWS)


def _follow(
    console: Console, run: Run, *, leave: Callable[[RunView], bool] = lambda _: False
) -> str:
    from llmops_kernel.cli.runs.live import follow_in_terminal

    with detached(run.id):
        return str(follow_in_terminal(run, console=console, leave=leave))


def score_both(console: Console, run: Run, config: Path, *, fit: Fit) -> bool:
    """Score the base model and the run's adapter, and compare them. Return whether both ended well.

    Both use one loaded engine: the second scoring starts at once.
    """
    from llmops_kernel import api
    from llmops_kernel.cli.runs.tables import print_scores

    _heading(console, "5  Scored: the base model against the adapter")
    file = score_config(config)
    if file is None:
        console.print(f"   left out: {plain(str(config.parent))} has no {SCORE_CONFIG}")
        return True
    scored = []
    rows, reason = fit.rows()
    if reason:
        console.print(f"   {reason}", highlight=False)
    for name, change in _models(run):
        console.print(f"   {name}: {rows} rows that training has not seen")
        record = submit_scoring(file, cluster=find(CLUSTER), model=change, rows=rows)
        scoring = api.attach(record.run_id)
        if (state := _follow(console, scoring)) != "SUCCEEDED":
            console.print(f"\nThe scoring is {state}. See: llmops show {scoring.id}")
            return False
        scored.append(scoring)
    print_scores(console, api.compare(*scored))
    return True


def _models(run: Run) -> list[tuple[str, str]]:
    return [("base", f"model.id={run.config.model.id}"), ("adapter", f"model.run={run.id}")]


def _result(console: Console, run: Run, watch: Stopwatch) -> None:
    _heading(console, "6  Locations")
    console.print(facts(_locations(run)))
    _heading(console, "7  Times")
    console.print(facts(_times(cast("TrainingView", run.view), watch)))
    _heading(console, "Next")
    console.print(_next(run), highlight=False)


def before_and_after(view: TrainingView) -> object:
    """Return one line a metric: the first evaluation, the last, the difference."""
    if len(view.evals) < 2:
        return "   the config evaluates only once: set evaluation.at_start and evaluation.at_end"
    first, last = view.evals[0], view.evals[-1]
    rows = []
    for name, after in last.metrics.items():
        before = first.metrics.get(name)
        if before is None:
            continue
        rows.append(
            [
                name,
                _format_value(name, before),
                _format_value(name, after),
                _gain(name, after - before),
            ]
        )
    names = ["metric", f"step {first.step}", f"step {last.step}", "change"]
    return table(names, rows, right=names[1:])


def _is_fraction(name: str) -> bool:
    return "accuracy" in name or name.endswith(("_match", "_f1"))


def _format_value(name: str, value: float) -> str:
    return fmt.percent(value) if _is_fraction(name) else fmt.loss(value)


def _gain(name: str, value: float) -> str:
    return f"{value * 100:+.1f} points" if _is_fraction(name) else f"{value:+.4f}"


def _locations(run: Run) -> dict[str, str]:
    from llmops_kernel import api

    outputs = {output.what: plain(output.path) for output in run.view.outputs}
    return {
        **outputs,
        "run folder": plain(str(run.folder.root)),
        "config": plain(str(run.folder.config)),
        "journal": plain(str(run.folder.journal)),
        "Ray dashboard": plain(api.cluster(CLUSTER).dashboard_url or ""),
        "workspace": plain(run.record.workspace_root),
    }


def _times(view: TrainingView, watch: Stopwatch) -> dict[str, str]:
    labels = {
        "cluster": "cluster up",
        "model": "model ready",
        "run": "submit to end",
        "scores": "two scorings",
    }
    parts = {labels[name]: fmt.seconds(took_s) for name, took_s in watch.parts.items()}
    if view.steps:
        trained_s = sum(step.step_time_s or 0.0 for step in view.steps)
        parts["  of it training"] = f"{fmt.seconds(trained_s)} for {len(view.steps)} steps"
    first = fmt.seconds(view.submit_to_first_step_s)
    if view.evals and view.evals[0].step == 0:
        first += f", {fmt.seconds(view.evals[0].duration_s)} of them the evaluation before it"
    parts["  submit to first step"] = first
    parts["total"] = fmt.seconds(sum(watch.parts.values()))
    return parts


def _next(run: Run) -> str:
    return (
        "   jupyter lab                               the same loop in a notebook\n"
        f"   llmops resubmit {run.id} optimizer.learning_rate=1e-4 --follow\n"
        "   llmops compare last~1 last                the two side by side\n"
        f"   llmops chat {run.id}\n"
        f"   llmops export {run.id} --to vllm\n"
        "   llmops down                               stop the cluster" + _activation()
    )


def _activation() -> str:
    """Return what makes `llmops` a command of this shell, where it is none."""
    activate = Path(sys.prefix, "bin", "activate")
    if shutil.which("llmops") or not activate.exists():
        return ""
    return f"\n   (first: source {activate})"
