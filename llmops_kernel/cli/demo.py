"""`llmops demo`: the whole loop in one command, told as it goes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from llmops_kernel.cli.console import facts, out, plain, table
from llmops_kernel.errors import ConfigError
from llmops_kernel.widgets import format as fmt

if TYPE_CHECKING:
    from rich.console import Console

    from llmops_kernel.api import Run
    from llmops_kernel.runs.view import RunView

CONFIG = "lora.train.yaml"
CLUSTER = "local"


class Stopwatch:
    """How long each part took, in order."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self._began_s = time.monotonic()

    def lap(self, name: str) -> None:
        now_s = time.monotonic()
        self.parts[name] = now_s - self._began_s
        self._began_s = now_s


def run_demo(workspace: Path, *, max_steps: int | None) -> int:
    """Cluster, model, run, result. Returns the exit code."""
    console = out()
    config = workspace / CONFIG
    if not config.exists():
        raise ConfigError(
            f"{config} does not exist.",
            remedy="run it in a clone of the repository, or name the folder with --workspace",
        )
    watch = Stopwatch()
    _cluster(console)
    watch.lap("cluster")
    _model(console, config)
    watch.lap("model")
    run = _submit(console, config, max_steps=max_steps)
    final = _follow(console, run)
    watch.lap("run")
    _result(console, run, watch)
    return 0 if final == "SUCCEEDED" else 1


def _heading(console: Console, text: str) -> None:
    console.print(f"\n[bold cyan]{text}[/]")


def _cluster(console: Console) -> None:
    from llmops_kernel.cli.cluster_commands import bring_up
    from llmops_kernel.clusters.providers import all_clusters

    _heading(console, "1  A Ray cluster that stays up")
    was_up = any(info.name == CLUSTER and info.is_ready for info in all_clusters())
    info = bring_up(CLUSTER)
    how = "found running" if was_up else "started"
    gpus = f", {info.num_gpus:g} GPUs" if info.num_gpus else ""
    cpus = fmt.DASH if info.num_cpus is None else f"{info.num_cpus:g}"
    console.print(f"   {how}: {cpus} CPUs{gpus}, dashboard {plain(info.dashboard_url or fmt.DASH)}")


def _model(console: Console, config: Path) -> None:
    """A catalogue model is converted here, with progress, and not unseen inside the run."""
    from llmops_kernel.cli.models import prepare_model
    from llmops_kernel.config.load import load_training_config

    model_id = load_training_config(config).model.id
    _heading(console, f"2  The model: {plain(model_id)}")
    console.print(f"   {plain(prepare_model(model_id))}")


def _submit(console: Console, config: Path, *, max_steps: int | None) -> Run:
    from llmops_kernel import api

    _heading(console, f"3  A run: {plain(str(config))}")
    overrides = [] if max_steps is None else [f"training.max_steps={max_steps}"]
    run = api.cluster(CLUSTER).submit(config, overrides=overrides, workspace=config.parent)
    console.print(f"   submitted {plain(run.id)}; Ctrl-C stops watching, not the run\n")
    return run


def _follow(console: Console, run: Run) -> str:
    from llmops_kernel.cli.live import follow_in_terminal
    from llmops_kernel.cli.submit_commands import detached

    with detached(run.id):
        return str(follow_in_terminal(run, console=console))


def _result(console: Console, run: Run, watch: Stopwatch) -> None:
    view = run.view
    if view.state != "SUCCEEDED":
        console.print(f"\nThe run is {view.state}. See: llmops show {run.id}")
        return
    _heading(console, "4  Held-out rows, before and after")
    console.print(before_and_after(view))
    _heading(console, "5  Where everything is")
    console.print(facts(_places(run)))
    _heading(console, "6  Times")
    console.print(facts(_times(view, watch)))
    _heading(console, "Next")
    console.print(_next(run), highlight=False)


def before_and_after(view: RunView) -> object:
    """One line a metric: the first evaluation, the last, the difference."""
    if len(view.evals) < 2:
        return "   the config evaluates only once: set evaluation.at_start and evaluation.at_end"
    first, last = view.evals[0], view.evals[-1]
    rows = []
    for name, after in last.metrics.items():
        before = first.metrics.get(name)
        if before is None:
            continue
        rows.append([name, _shown(name, before), _shown(name, after), _gain(name, after - before)])
    names = ["metric", f"step {first.step}", f"step {last.step}", "change"]
    return table(names, rows, right=names[1:])


def _is_fraction(name: str) -> bool:
    return "accuracy" in name or name.endswith(("_match", "_f1"))


def _shown(name: str, value: float) -> str:
    return fmt.percent(value) if _is_fraction(name) else fmt.loss(value)


def _gain(name: str, value: float) -> str:
    return f"{value * 100:+.1f} points" if _is_fraction(name) else f"{value:+.4f}"


def _places(run: Run) -> dict[str, str]:
    from llmops_kernel.clusters.providers import find_cluster

    outputs = {output.what: plain(output.path) for output in run.view.outputs}
    return {
        **outputs,
        "run folder": plain(str(run.folder.root)),
        "config": plain(str(run.folder.config)),
        "journal": plain(str(run.folder.journal)),
        "Ray dashboard": plain(find_cluster(CLUSTER).dashboard_url or ""),
        "notebook": "make lab",
    }


def _times(view: RunView, watch: Stopwatch) -> dict[str, str]:
    labels = {"cluster": "cluster up", "model": "model ready", "run": "submit to end"}
    parts = {labels[name]: fmt.seconds(took_s) for name, took_s in watch.parts.items()}
    if view.steps:
        trained_s = sum(step.step_time_s for step in view.steps)
        parts["  of it training"] = f"{fmt.seconds(trained_s)} for {len(view.steps)} steps"
    first = fmt.seconds(view.submit_to_first_step_s)
    if view.evals and view.evals[0].step == 0:
        first += f", {fmt.seconds(view.evals[0].duration_s)} of them the evaluation before it"
    parts["  submit to first step"] = first
    parts["total"] = fmt.seconds(sum(watch.parts.values()))
    return parts


def _next(run: Run) -> str:
    return (
        "   make lab                                  the same loop in a notebook\n"
        f"   llmops resubmit {run.id} optimizer.learning_rate=1e-4 --follow\n"
        "   llmops compare last~1 last                the two side by side\n"
        "   llmops down                               stop the cluster\n"
        "   (llmops is in .venv/bin: source .venv/bin/activate)"
    )
