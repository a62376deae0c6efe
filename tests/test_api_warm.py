"""A run on a real cluster says of each of its processes whether it was warm, and why not."""

from __future__ import annotations

from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.providers.protocol import ClusterInfo
from tests.tiny_training import write_training

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_training(
        tmp_path,
        "warm",
        method="full",
        parallelism={"strategy": "zero2", "num_workers": 2},
        training={"global_batch_size": 4},
    )


def test_driver_and_workers_report_how_they_were_started(
    ray_cluster: ClusterInfo, config: Path
) -> None:
    cluster = llmops.cluster(ray_cluster.name)
    run = cluster.submit(config)
    assert run.wait(300) == "SUCCEEDED"
    warmth = run.view.warmth
    assert warmth is not None
    assert (warmth.warm, warmth.cold, warmth.text) == (3, 0, "warm")
    assert warmth.private_bytes is not None
    print(f"private memory: {warmth.private_bytes}, {cluster}")
    assert len(warmth.private_bytes) == 2
    for size in warmth.private_bytes:
        assert size is not None
        assert 10 * 2**20 < size < 4 * 2**30
    info = cluster.info
    assert info.warm == "warm"
    assert info.warm_modules
    assert info.warm_forked
    assert info.warm_forked >= 3
    assert ", warm, " in repr(cluster)
