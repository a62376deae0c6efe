"""Scripts that use Ray Train themselves: the run starts the script, the script its workers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import llmops_kernel as llmops
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.protocol import ClusterInfo
from tests.end_to_end.script_runs import write
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow]

RAY_OWN = ("_AutoscalingCoordinatorActor",)
"""Ray's library makes it once a cluster, detached and without resources, and keeps it."""
STEPS = """
    import sys, time
    import torch, torch.distributed as dist
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer
    from llmops_kernel import track

    total = int(sys.argv[1])

    def train_func():
        path = track.resume_checkpoint()
        done = torch.load(path)["step"] if path else 0
        track.start(total_steps=total)
        for step in range(done + 1, total + 1):
            time.sleep(0.05)
            dist.barrier()
            track.log(reward=step / 2)
            track.step(step=step, loss=1.0 / step, tokens_per_worker=10)
            if track.should_stop():
                print("rank", dist.get_rank(), "leaves at", step, flush=True)
                if dist.get_rank() == 0:
                    torch.save({"step": step}, "state.pt")
                track.checkpoint("state.pt", step=step)
                break

    TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=2)).fit()
    print("the script goes on after fit", flush=True)
"""


def left_on_cluster(name: str, what: str, ended: tuple[str, ...]) -> list[Any]:
    """Return the actors or placement groups of runs that are not at their end."""
    connection = LocalProvider().connect(name)
    answer = httpx.get(
        f"{connection.dashboard_url}/api/v0/{what}",
        params={"detail": "1"},
        headers=connection.headers(),
        timeout=30,
    )
    rows: list[Any] = answer.raise_for_status().json()["data"]["result"]["result"]
    runs = [row for row in rows if row.get("class_name") not in RAY_OWN]
    return [row for row in runs if row["state"] not in ended]


def check_nothing_is_left(name: str) -> None:
    """Wait until no run holds anything of the cluster."""
    for what, ended in (("actors", ("DEAD",)), ("placement_groups", ("REMOVED",))):
        deadline_s = time.monotonic() + 60
        while left := left_on_cluster(name, what, ended):
            assert time.monotonic() < deadline_s, left
            time.sleep(0.5)


def test_a_stop_reaches_the_workers_that_the_script_has_started(
    ray_cluster: ClusterInfo, tmp_path: Path
) -> None:
    run = llmops.cluster(ray_cluster.name).submit(write(tmp_path, STEPS), args=["4000"])
    until(lambda: len(run.view.steps) >= 3 or run.has_ended)
    assert not run.has_ended, run.logs()
    assert left_on_cluster(ray_cluster.name, "actors", ("DEAD",)), "Ray Train's workers are actors"
    run.stop()
    assert run.wait(120) == "STOPPED", run.logs()
    step = run.view.last_step
    assert run.view.message == f"Stopped at step {step}, after saving a checkpoint."
    leaves = [line for line in run.logs().splitlines() if "leaves at" in line]
    assert {line.split("leaves at ")[1] for line in leaves} == {str(step)}, run.logs()
    assert "the script goes on after fit" in run.logs()
    check_nothing_is_left(ray_cluster.name)
    run.retry()
    until(lambda: run.view.attempt == 2 and (run.view.last_step or 0) > (step or 0))
    run.stop()
    assert run.wait(120) == "STOPPED", run.logs()
    metrics = run.metrics()
    assert list(metrics.index) == list(range(1, len(metrics) + 1))
    assert list(metrics["reward"]) == [number / 2 for number in metrics.index]


def test_a_stop_of_workers_that_never_ask_leaves_nothing_on_the_cluster(
    ray_cluster: ClusterInfo, tmp_path: Path
) -> None:
    path = write(
        tmp_path,
        """
        import time
        from ray.train import ScalingConfig
        from ray.train.torch import TorchTrainer

        def train_func():
            print("worker runs", flush=True)
            time.sleep(300)

        TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=2)).fit()
        """,
    )
    run = llmops.cluster(ray_cluster.name).submit(path)
    until(lambda: "worker runs" in run.logs())
    run.stop()
    assert run.wait(120) == "STOPPED", run.logs()
    assert "track.should_stop()" in run.view.message
    check_nothing_is_left(ray_cluster.name)
