"""An engine that waits, for the next job or for a GPU, keeps it from nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import llmops_kernel as llmops
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.protocol import Connection
from tests.score.conftest import numbered, output_of, table_of, write_workspace
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow]
HOLDS_THE_GPU = """
import time
from llmops_kernel import track
track.step(loss=1.0)
while not track.should_stop():
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def one_gpu() -> Iterator[llmops.Cluster]:
    """A cluster that believes it has a GPU: Ray counts what it was given."""
    LocalProvider().up(ClusterTemplate(name="gpu", num_gpus=1))
    yield llmops.cluster("gpu")
    llmops.cluster("gpu").down(force=True)


@pytest.fixture
def held(one_gpu: llmops.Cluster, tmp_path: Path) -> Iterator[llmops.Run]:
    """A run that has the GPU until it is stopped."""
    folder = tmp_path / "holder"
    folder.mkdir()
    (folder / "hold.py").write_text(HOLDS_THE_GPU)
    run = one_gpu.submit(folder / "hold.py", num_workers=1, resources={"gpus": 1})
    until(lambda: bool(run.view.steps))
    yield run
    if not run.has_ended:
        run.stop()
        run.wait(60, raise_on_failure=False)


def engines(connection: Connection) -> list[str]:
    """States of the engines that are there, or wait for their resources."""
    url = f"{connection.dashboard_url}/api/v0/actors"
    answer = httpx.get(url, headers=connection.headers(), timeout=30).raise_for_status().json()
    rows = [row for row in answer["data"]["result"]["result"] if row["state"] != "DEAD"]
    return [row["state"] for row in rows if row["class_name"] == "EngineActor"]


def waits(run: llmops.Run) -> Callable[[], bool]:
    """Whether it waits in the queue: its engine asks Ray for the GPU when it is its turn."""
    return lambda: run.view.state == "QUEUED"


def test_a_run_that_waits_for_a_gpu_has_no_engine_yet_and_leaves_none(
    one_gpu: llmops.Cluster, held: llmops.Run, tmp_path: Path
) -> None:
    path = write_workspace(tmp_path / "workspace", numbered(20))
    connection = LocalProvider().connect("gpu")
    alone = one_gpu.submit(path)
    until(waits(alone))
    assert engines(connection) == []
    alone.stop()
    alone.wait(60, raise_on_failure=False)
    assert alone.view.state == "STOPPED"
    until(lambda: engines(connection) == [], timeout_s=10)

    first, second = one_gpu.submit(path), one_gpu.submit(path)
    until(waits(first))
    until(waits(second))
    assert engines(connection) == []
    first.stop()
    first.wait(60, raise_on_failure=False)
    held.stop()
    second.wait(120)
    assert len(table_of(output_of(second))) == 20
    assert engines(connection) == ["ALIVE"]


def test_an_idle_engine_leaves_when_a_score_run_of_another_one_needs_its_gpu(
    one_gpu: llmops.Cluster, tmp_path: Path
) -> None:
    path = write_workspace(tmp_path / "workspace", numbered(20))
    for load_s in (0.1, 0.2):
        settings = {"engine.keep_s": 900, "engine.options": {"load_s": load_s}}
        run = one_gpu.submit(path, overrides=settings)
        run.wait(60)
        assert not run.view.warnings


def test_an_idle_engine_leaves_when_a_run_needs_its_gpu(
    one_gpu: llmops.Cluster, tmp_path: Path
) -> None:
    path = write_workspace(tmp_path / "workspace", numbered(20))
    one_gpu.submit(path, overrides={"engine.keep_s": 900}).wait(120)
    script = tmp_path / "workspace" / "train.py"
    script.write_text("from llmops_kernel import track\ntrack.step(loss=1.0)\n")
    run = one_gpu.submit(script, num_workers=1, resources={"gpus": 1})
    run.wait(60)
    assert run.view.state == "SUCCEEDED"
    assert not run.view.warnings
