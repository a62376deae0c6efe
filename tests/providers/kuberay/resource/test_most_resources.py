"""What the autoscaler may bring a cluster to, counted as Ray and the operator count."""

from __future__ import annotations

from typing import Any

import pytest

from llmops_kernel.providers.kuberay.resource.status import most_resources
from tests.providers.kuberay.observations import raycluster

AUTO = {"enableInTreeAutoscaling": True, "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}}}


def group(most: int = 3, limits: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    containers = [{"name": "ray-worker", "resources": {"limits": limits or {"cpu": "2"}}}]
    template = {"spec": {"containers": containers}}
    bounds = {"replicas": 0, "minReplicas": 0, "maxReplicas": most, "numOfHosts": 1}
    return {"groupName": "gpu", "template": template, **bounds, **fields}


@pytest.mark.parametrize(
    ("groups", "cpus", "gpus"),
    [
        ([group()], 6, 0),
        ([group(limits={"cpu": "1500m", "nvidia.com/gpu": "8"})], 6, 24),
        ([group(rayStartParams={"num-cpus": "5", "num-gpus": "1"})], 15, 3),
        ([group(resources={"CPU": "7", "GPU": "2"})], 21, 6),
        ([group(numOfHosts=4)], 24, 0),
        ([group(), group(most=1, suspend=True)], 6, 0),
    ],
)
def test_all_groups_at_their_upper_bounds(
    groups: list[dict[str, Any]], cpus: float, gpus: float
) -> None:
    cluster = raycluster(groups=groups, spec=AUTO)
    assert most_resources(cluster) == {"CPU": cpus, "GPU": gpus}


def test_the_head_counts_where_it_takes_work() -> None:
    head = {"template": {"spec": {"containers": [{"resources": {"requests": {"cpu": 4}}}]}}}
    cluster = raycluster(groups=[group()], spec={**AUTO, "headGroupSpec": head})
    assert most_resources(cluster) == {"CPU": 10.0, "GPU": 0.0}


def test_without_the_autoscaler_there_is_none() -> None:
    assert most_resources(raycluster()) is None
