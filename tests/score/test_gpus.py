"""An engine that waits for the next job does not keep its GPU from a training run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.providers.local.provider import LocalProvider
from tests.score.conftest import numbered, write_workspace

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def one_gpu() -> Iterator[llmops.Cluster]:
    """A cluster that believes it has a GPU: Ray counts what it was given."""
    LocalProvider().up(ClusterTemplate(name="gpu", num_gpus=1))
    yield llmops.cluster("gpu")
    llmops.cluster("gpu").down(force=True)


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
