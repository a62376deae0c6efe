"""A sweep of tiny runs: its wall time beside the sum of its steps, and what is lost between trials.

python -m tests.benchmarks.sweep --trials 24
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import llmops_kernel as llmops
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.store.journal.training_view import TrainingView
from tests.tiny_training import slow_hooks, write_training

NAME = "sweep-bench"


def measure(folder: Path, *, trials: int, steps: int, pause_s: float) -> None:
    config = write_training(
        folder / "workspace",
        "tiny",
        hooks=slow_hooks(pause_s),
        training={"max_steps": steps},
    )
    cluster = llmops.cluster(NAME)
    cluster.submit(config).wait()  # The first run compiles, converts and caches.
    begun_s = time.monotonic()
    sweep = cluster.sweep(config, {"seed": list(range(trials))})
    wall_s = time.monotonic() - begun_s
    views = [run.view for run in sweep.runs]
    assert all(isinstance(view, TrainingView) for view in views)
    each = [view.steps for view in views if isinstance(view, TrainingView)]
    step_s = sum(step.step_time_s or 0.0 for steps_of_run in each for step in steps_of_run)
    firsts = [of_run[0].time_s - (of_run[0].step_time_s or 0.0) for of_run in each]
    lasts = [of_run[-1].time_s for of_run in each]
    gaps = [after - before for before, after in zip(lasts, firsts[1:], strict=False)]
    print(f"{len(views)} trials, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    besides_s = (wall_s - step_s) / trials
    print(f"wall {wall_s:.1f} s, steps {step_s:.1f} s, besides {besides_s:.2f} s a trial")
    print(
        f"last step of a trial to first step of the next: median {statistics.median(gaps):.2f} s"
        f" ({min(gaps):.2f} - {max(gaps):.2f})"
    )
    loops = sorted(view.submit_to_first_step_s or 0.0 for view in views)
    print(f"submit to first step: median {statistics.median(loops):.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds that a step is longer")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmops-s-") as name:
        os.environ["LLMOPS_HOME"] = str(Path(name) / "home")
        provider = LocalProvider()
        provider.up(ClusterTemplate(name=NAME), progress=print)
        try:
            measure(
                Path(name),
                trials=arguments.trials,
                steps=arguments.steps,
                pause_s=arguments.pause,
            )
        finally:
            provider.down(NAME)


if __name__ == "__main__":
    main()
