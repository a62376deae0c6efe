"""Where Kueue replaces the head, history comes home first, through every door."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.api.cluster_handle import Cluster
from llmops_kernel.errors import ClusterStateError, HistoryError
from llmops_kernel.providers.protocol import ClusterAction
from llmops_kernel.server.cluster_routes import start_action
from llmops_kernel.server.operations import Operations
from llmops_kernel.server.wire.clusters import ScaleBody
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.store import RunStore
from tests.providers.kuberay.conftest import Cloud
from tests.providers.kuberay.life.test_guard import lines_at_home, write_run
from tests.providers.kuberay.life.test_queued import admitted
from tests.providers.kuberay.ray_dashboard import RayDashboard
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("farm")
LINES = ["line 0", "line 1", "line 2"]


def scale(cluster: Cluster, cloud: Cloud, *, force: bool) -> None:
    cluster.scale(workers={"w": 3}, force=force)


def scale_in_lab(cluster: Cluster, cloud: Cloud, *, force: bool) -> None:
    operations, backend = Operations(), Backend(providers=lambda: [cloud.provider])
    numbers = ScaleBody(workers={"w": 3})
    act = ClusterAction.SCALE
    begun = start_action(operations, backend, "one", act, numbers=numbers, force=force)
    ended = until(lambda: _ended(operations, begun.id))
    if ended.state == "failed":
        raise HistoryError(ended.trouble.message)


def _ended(operations: Operations, operation_id: str) -> Any:
    info = operations.get(operation_id)
    return info if info is not None and info.state != "running" else None


def apply(cluster: Cluster, cloud: Cloud, *, force: bool) -> None:
    template = cloud.template(queue="team-a", head={"cpus": "2", "memory": "2Gi"})
    path = cloud.home / "one.yaml"
    values = template.model_dump(mode="json", exclude_defaults=True) | {"provider": "kuberay"}
    path.write_text(json.dumps(values))
    cluster.apply(path, lose_history=force)


@pytest.mark.parametrize("act", [scale, scale_in_lab, apply])
def test_history_comes_home_before_the_head_goes(
    cloud: Cloud, ray: RayDashboard, store: RunStore, tmp_path: Path, act: Callable[..., None]
) -> None:
    admitted(cloud, elastic=False)
    cloud.provider.wait("one", timeout_s=30)
    run_id = write_run(store, cloud, ray, folder=tmp_path / "remote")
    ray.run("lora-1-1")
    cluster = Cluster("one", provider=cloud.provider)
    before = cloud.live()["spec"]
    ray.is_silent = True
    with pytest.raises(HistoryError, match="cannot be archived"):
        act(cluster, cloud, force=False)
    assert cloud.live()["spec"] == before
    ray.is_silent = False
    act(cluster, cloud, force=False)
    assert cloud.live()["spec"] != before
    assert lines_at_home(store, run_id) == LINES


def test_workers_come_back_after_history_and_confirmation(
    cloud: Cloud, ray: RayDashboard, store: RunStore, tmp_path: Path
) -> None:
    admitted(cloud, elastic=False)
    cloud.provider.suspend("one")
    cloud.patch("one", {"spec": {"suspend": False}}, manager="kueue")
    until(lambda: cloud.provider.get("one").head_runs)
    until(lambda: not cloud.provider.head_is_gone("one"))
    run_id = write_run(store, cloud, ray, folder=tmp_path / "remote")
    ray.run("lora-1-1")
    preview = until(lambda: _listing(cloud))
    assert preview.needs_confirmation
    # `up` asks nobody, so it does not end what runs.
    with pytest.raises(ClusterStateError, match="Kueue replaces the head") as caught:
        cloud.provider.up(cloud.template(queue="team-a"), wait=False)
    assert "llmops resume one" in caught.value.remedy
    Cluster("one", provider=cloud.provider).resume()
    assert cloud.live()["spec"]["workerGroupSpecs"][0]["replicas"] == 2
    assert lines_at_home(store, run_id) == LINES


def _listing(cloud: Cloud) -> Any:
    """Return the preview once Ray has listed its jobs."""
    preview = cloud.provider.preview("one", ClusterAction.RESUME)
    return preview if any("lora-1" in line for line in preview.stops) else None
