"""Steps per second of a training that reports to MLflow, to one that is down, and to nobody.

    python -m tests.benchmarks.trackers [--rounds 5] [--steps 300]

The same training of the tiny model in turn (nobody, up, down, nobody ...) on one local cluster,
with a real MLflow server on this machine, whose own share of the cores counts against `up`. Per
run: the steps from the 20th on, by the time between the first and the last. Printed are medians,
and the median over the rounds of the ratio to `nobody`. Needs what `make trackers` makes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.trackers.real import environment as env

_WARM_STEPS = 20
SIDES = ("nobody", "up", "down")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmops-b-") as folder:
        os.environ["LLMOPS_HOME"] = f"{folder}/home"
        measure(Path(folder), rounds=arguments.rounds, steps=arguments.steps)


def measure(folder: Path, *, rounds: int, steps: int) -> None:
    from llmops_kernel.config.models.cluster import ClusterTemplate
    from llmops_kernel.driver.report import PYTHON_ENV_VAR
    from llmops_kernel.providers.local.provider import LocalProvider

    os.environ[PYTHON_ENV_VAR] = env.python()
    provider = LocalProvider()
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    with ExitStack() as stack:
        up, down = env.free_port(), env.free_port()
        stack.enter_context(env.mlflow_server(folder, up))
        provider.up(ClusterTemplate(name="bench"), progress=print)
        stack.callback(provider.down, "bench")
        run_once(folder, "nobody", steps=steps, port=up)  # Caches are warm from here on.
        for number in range(rounds):
            for side in SIDES:
                rate = run_once(folder, side, steps=steps, port=down if side == "down" else up)
                rates[side].append(rate)
                print(f"round {number + 1}, {side}: {rate:.1f} steps/s", flush=True)
    for side in SIDES:
        ratios = [a / b for a, b in zip(rates[side], rates["nobody"], strict=True)]
        print(
            f"{side}: median {statistics.median(rates[side]):.1f} steps/s,"
            f" {statistics.median(ratios):.3f} of nobody ({min(ratios):.3f} - {max(ratios):.3f})"
        )


def run_once(folder: Path, side: str, *, steps: int, port: int) -> float:
    """Return steps per second of one training. What sends it is killed with its end."""
    import llmops_kernel as llmops
    from tests.tiny_training import write_training

    sections = {"report_to": ["mlflow"], "tracking": {"mlflow_uri": f"http://127.0.0.1:{port}"}}
    config = write_training(
        folder / "workspace",
        "tiny",
        training={"max_steps": steps},
        **({} if side == "nobody" else sections),
    )
    run = llmops.cluster("bench").submit(config)
    run.wait()
    times_s = [event.time_s for event in run.view.steps][_WARM_STEPS:]
    _end_senders()
    return (len(times_s) - 1) / (times_s[-1] - times_s[0])


def _end_senders() -> None:
    """The next run must not share the cores with the sender of this one."""
    from tests.end_to_end.conftest import processes

    while senders := processes("llmops_kernel.trackers.process"):
        for process in senders:
            process.kill()
        time.sleep(0.2)


if __name__ == "__main__":
    main()
