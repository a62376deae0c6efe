"""A workspace with the tiny model, and a way to find and kill the processes of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import llmops_kernel as llmops
from llmops_kernel.providers.protocol import ClusterInfo
from tests.tiny_training import slow_hooks, write_training


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    config = write_training(
        tmp_path / "workspace",
        "chaos",
        hooks=slow_hooks(0.25),  # A kill comes between steps that are known.
        rows=96,
        parallelism={"num_workers": 2},
        optimizer={"learning_rate": 2e-3},
        training={"global_batch_size": 4, "max_steps": 24, "max_failures": 1},
        checkpoint={"every_steps": 5},
    )
    return config.parent


@pytest.fixture
def cluster(ray_cluster: ClusterInfo) -> llmops.Cluster:
    return llmops.cluster(ray_cluster.name)


@pytest.fixture
def submit(cluster: llmops.Cluster, workspace: Path) -> Iterator[Callable[..., llmops.Run]]:
    """Submit the config with overrides; what still runs at the end is stopped."""
    runs: list[llmops.Run] = []

    def submit(**overrides: object) -> llmops.Run:
        runs.append(cluster.submit(workspace / "chaos.train.yaml", **overrides))
        return runs[-1]

    yield submit
    for run in runs:
        run.stop()
        run.wait(120, raise_on_failure=False)


def at_step(run: llmops.Run, step: int) -> Callable[[], bool]:
    def reached() -> bool:
        assert run.view.state != "FAILED", run.view.message
        return (run.view.last_step or 0) >= step

    return reached


def processes(title: str) -> list[psutil.Process]:
    """Of this test session's clusters, with that text in the command line; oldest first."""
    from llmops_kernel.store.paths import HOME_ENV_VAR, home

    found = []
    for process in psutil.process_iter(["cmdline", "create_time"]):
        try:
            # Somebody else's run on this machine is not to be killed by a test.
            mine = process.environ().get(HOME_ENV_VAR) == str(home())
            mine &= process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if mine and title in " ".join(process.info["cmdline"] or []):
            found.append(process)
    return sorted(found, key=lambda process: process.info["create_time"])


def workers() -> list[psutil.Process]:
    return processes("RayTrainWorker")
