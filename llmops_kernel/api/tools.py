"""New files, checks of this machine, the demo and the benchmark, as Python functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmops_kernel.api.environment import default_progress
from llmops_kernel.api.run_handle import Run
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services.backend import current

if TYPE_CHECKING:
    from llmops_kernel.services.doctor.report import DoctorReport
    from llmops_kernel.views.bench_figures import Kind, LoopFigures


def doctor(*, run: bool = False, timeout_s: float = 150.0) -> DoctorReport:
    """Check this machine and this installation; the result prints one line a check.

    `run` also trains a tiny model for 20 steps on a temporary cluster, for at most `timeout_s`.
    """
    from llmops_kernel.services.doctor.report import examine

    return examine(with_run=run, timeout_s=timeout_s)


def demo(
    workspace: str | Path | None = None,
    *,
    max_steps: int | None = None,
    progress: Progress | None = None,
) -> Run:
    """Fine-tune SmolLM2-135M on the shipped data; return the run as soon as it is submitted.

    Starts cluster `local` and prepares the model where needed. `workspace` is another folder
    with `lora.train.yaml` and its data; `max_steps` replaces the config's number of steps.
    """
    from llmops_kernel.services.demo import start_demo

    record = start_demo(
        None if workspace is None else Path(workspace),
        max_steps=max_steps,
        progress=progress or default_progress(),
    )
    return Run(current(), record.run_id)


def bench(
    config: str | Path,
    overrides: Sequence[str] = (),
    *,
    cluster: str = "local",
    runs: int = 5,
    kinds: Sequence[Kind] = ("warm", "cold"),
    progress: Progress | None = None,
) -> LoopFigures:
    """Submit one config warm and cold alternately; return the times to the first step.

    `config` is a training config, a script config or a Python script, and `overrides` are the
    changes to it or the script's arguments. `runs` is the number of submissions of each kind. Runs
    that did not start the intended way are not counted. The cluster is started if needed, and kept
    running.
    Raises RunFailedError for the first run that fails.
    """
    from llmops_kernel.services.bench.loop import LoopBench

    report = progress or default_progress() or (lambda text: None)
    loop = LoopBench(
        Path(config), overrides, cluster=cluster, kinds=kinds, runs=runs, report=report
    )
    loop.run()
    return loop.figures
