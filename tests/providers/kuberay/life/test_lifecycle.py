"""A cluster's life against the stand-in of the API server and a simulated operator."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest

from llmops_kernel.errors import (
    ClusterDeadError,
    ClusterNotFoundError,
    ClusterStartError,
    ClusterStateError,
)
from llmops_kernel.providers.protocol import ClusterAction, ClusterSize, ClusterState
from tests.k8s.standin.farm import Farm
from tests.providers.kuberay.conftest import Cloud
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("farm")
READY_S = 30.0


def test_up_returns_at_once_and_wait_shows_until_it_is_ready(cloud: Cloud) -> None:
    lines: list[str] = []
    cloud.ray.is_silent = True

    def report(line: str) -> None:
        lines.append(line)
        cloud.ray.is_silent = "Ray's API does not answer" not in line

    info = cloud.provider.up(cloud.template(), wait=False)
    assert info.state is ClusterState.STARTING
    info = cloud.provider.wait("one", timeout_s=READY_S, progress=report)
    assert info.is_ready
    assert (info.workers_ready, info.workers_wanted) == (2, 2)
    assert (info.num_nodes, info.num_gpus, info.jobs_running) == (1, 8.0, 0)
    assert (info.context, info.namespace) == ("standin", cloud.namespace)
    assert not info.is_adopted
    assert lines
    assert re.search(r"\(\d+ s\)$", lines[0]), lines


def test_a_wait_for_ray_is_told_in_short_lines_and_again_only_after_a_while(cloud: Cloud) -> None:
    """Each look tries all routes again."""
    lines: list[str] = []
    cloud.ray.is_silent = True
    cloud.provider.up(cloud.template(), wait=False)
    with pytest.raises(ClusterStartError, match=r"does not answer \(Cannot reach .*503"):
        cloud.provider.wait("one", timeout_s=9, progress=lines.append)
    told = [line for line in lines if "Ray's API does not answer" in line]
    assert len(told) == 1, told
    assert len(told[0]) <= 120
    info = cloud.provider.get("one")
    assert (info.state, info.workers_ready) == (ClusterState.STARTING, 2)
    cloud.ray.is_silent = False
    assert cloud.provider.wait("one", timeout_s=READY_S).is_ready


def test_up_again_changes_nothing(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template())
    before = cloud.live()["metadata"]
    info = cloud.provider.up(cloud.template())
    after = cloud.live()["metadata"]
    assert info.is_ready
    assert info.message == ""
    assert (after["generation"], after["uid"]) == (before["generation"], before["uid"])
    assert after["annotations"] == before["annotations"]


def test_a_changed_template_is_reported_and_applied_only_on_demand(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template())
    other = cloud.template(image="rayproject/ray:2.60.0-gpu")
    info = cloud.provider.up(other)
    assert "only new pods" in info.message
    assert cloud.live()["metadata"]["generation"] == 1
    effect = cloud.provider.effect(other)
    assert effect.kind == "new-pods"
    cloud.provider.apply(other)
    spec = cloud.live()["spec"]
    containers = spec["headGroupSpec"]["template"]["spec"]["containers"]
    assert containers[0]["image"] == "rayproject/ray:2.60.0-gpu"
    assert "template differs" not in cloud.provider.up(other, wait=False).message


def test_what_left_the_template_is_removed_by_apply(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template(env={"NCCL_DEBUG": "INFO"}), wait=False)
    assert "NCCL_DEBUG" in str(cloud.live()["spec"])
    cloud.provider.apply(cloud.template())
    assert "NCCL_DEBUG" not in str(cloud.live()["spec"])


def test_apply_succeeds_while_others_change_the_object(cloud: Cloud) -> None:
    """An operator may write between our reading and our writing."""
    cloud.provider.up(cloud.template(env={"NCCL_DEBUG": "INFO"}), wait=False)
    ended = threading.Event()

    def change() -> None:
        number = 0
        while not ended.wait(0.03):
            number += 1
            annotations = {"metadata": {"annotations": {"other/number": f"{number}"}}}
            cloud.patch("one", annotations, manager="other")

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for level in ("WARN", "INFO", "TRACE"):
            cloud.provider.apply(cloud.template(env={"NCCL_DEBUG": level}))
            assert f"'{level}'" in str(cloud.live()["spec"])
    finally:
        ended.set()
        changing.join()


def test_apply_after_scale_does_not_fight_ourselves(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template())
    cloud.provider.scale("one", ClusterSize(workers={"w": 3}))
    cloud.provider.apply(cloud.template(image="rayproject/ray:2.60.0-gpu"))
    assert cloud.live()["spec"]["workerGroupSpecs"][0]["replicas"] == 2


def test_scale_up_and_down_and_its_bounds(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template())
    info = cloud.provider.scale("one", ClusterSize(workers={"w": 4}))
    assert (info.workers_ready, info.groups[0].replicas, info.groups[0].max_replicas) == (4, 4, 4)
    generation = cloud.live()["metadata"]["generation"]
    cloud.provider.scale("one", ClusterSize(workers={"w": 4}))
    assert cloud.live()["metadata"]["generation"] == generation
    with pytest.raises(ClusterStateError, match="0 to 4 replicas, not 5"):
        cloud.provider.scale("one", ClusterSize(workers={"w": 5}))
    with pytest.raises(ClusterStateError, match="no worker group 'x'; known: w"):
        cloud.provider.scale("one", ClusterSize(workers={"x": 1}))
    with pytest.raises(ClusterStateError, match="worker group: w") as caught:
        cloud.provider.scale("one", ClusterSize(num_cpus=2))
    assert "--workers" in caught.value.remedy


def test_with_the_autoscaler_only_a_higher_number_has_an_effect(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template(autoscaling=True))
    assert (
        "removes those that stay idle" in cloud.provider.preview("one", ClusterAction.SCALE).summary
    )
    cloud.provider.scale("one", ClusterSize(workers={"w": 3}))
    with pytest.raises(
        ClusterStateError, match="has 3 replicas, and only Ray's autoscaler"
    ) as caught:
        cloud.provider.scale("one", ClusterSize(workers={"w": 1}))
    assert "max_replicas" in caught.value.remedy
    assert cloud.live()["spec"]["workerGroupSpecs"][0]["replicas"] == 3


def test_suspend_and_resume(cloud: Cloud, farm: Farm) -> None:
    cloud.provider.up(cloud.template())
    cloud.provider.suspend("one")
    info = until(lambda: _if_state(cloud, ClusterState.STOPPED))
    assert info.remedy == "llmops resume one"
    assert info.actions[ClusterAction.RESUME] == ""
    assert info.actions[ClusterAction.SCALE]
    assert farm.pods(cloud.namespace) == []
    with pytest.raises(ClusterNotFoundError, match="is stopped"):
        cloud.provider.connect("one")
    with pytest.raises(ClusterDeadError, match="is stopped"):
        cloud.provider.wait("one", timeout_s=1)
    assert cloud.provider.resume("one").is_ready
    # `up` of one that sleeps wakes it, too.
    cloud.provider.down("one")
    assert cloud.provider.up(cloud.template()).is_ready


def _if_state(cloud: Cloud, state: ClusterState) -> Any:
    info = cloud.provider.get("one")
    return info if info.state is state else None


def test_under_kueue_suspend_is_left_alone_and_workers_go(cloud: Cloud) -> None:
    body = _by_hand("one", cloud, labels={"kueue.x-k8s.io/queue-name": "team-a"})
    cloud.create(body)
    until(lambda: cloud.provider.get("one").is_ready)
    cloud.provider.suspend("one")
    live = cloud.live()
    assert "suspend" not in live["spec"]
    group = live["spec"]["workerGroupSpecs"][0]
    assert (group["replicas"], group["minReplicas"]) == (0, 0)
    assert cloud.provider.get("one").state is ClusterState.STOPPED
    info = cloud.provider.resume("one")
    group = cloud.live()["spec"]["workerGroupSpecs"][0]
    assert (group["replicas"], group["minReplicas"]) == (2, 1)
    assert info.is_ready


def test_a_cluster_that_others_made_is_usable_at_once(cloud: Cloud) -> None:
    cloud.create(_by_hand("theirs", cloud))
    info = until(lambda: _ready(cloud, "theirs"))
    assert info.is_adopted
    assert cloud.provider.names() == ("theirs",)
    assert cloud.provider.connect("theirs").dashboard_url
    assert cloud.provider.scale("theirs", ClusterSize(workers={"g": 1})).workers_ready == 1
    cloud.provider.keep("theirs", for_s=600)
    cloud.provider.delete("theirs")
    assert cloud.provider.names() == ()


def _ready(cloud: Cloud, name: str) -> Any:
    info = cloud.provider.get(name)
    return info if info.is_ready else None


def _by_hand(name: str, cloud: Cloud, *, labels: dict[str, str] | None = None) -> dict[str, Any]:
    pod = {
        "metadata": {"annotations": cloud.route},
        "spec": {"containers": [{"name": "ray", "image": "rayproject/ray:2.60.0"}]},
    }
    group = {"groupName": "g", "replicas": 2, "minReplicas": 1, "maxReplicas": 3, "template": pod}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "rayVersion": "2.60.0",
            "headGroupSpec": {"rayStartParams": {}, "template": pod},
            "workerGroupSpecs": [group | {"rayStartParams": {}, "minReplicas": 1}],
        },
    }


def test_keep_is_written_and_taken_back(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template(), wait=False)
    kept = cloud.provider.keep("one", for_s=7200).kept_until_s
    assert kept is not None
    assert 7100 < kept - time.time() <= 7201
    assert cloud.provider.keep("one", for_s=0).kept_until_s is None
    assert cloud.live()["metadata"]["generation"] == 1


def test_delete_is_of_that_very_cluster(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template(), wait=False)
    preview = cloud.provider.preview("one", ClusterAction.DELETE)
    assert preview.needs_confirmation
    assert cloud.namespace in preview.summary
    cloud.provider.delete("one")
    assert cloud.live()["code"] == 404
    with pytest.raises(ClusterNotFoundError, match="no RayCluster 'one'"):
        cloud.provider.get("one")


def test_running_work_is_named_before_it_is_stopped(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template())
    run = {"status": "RUNNING", "type": "SUBMISSION", "metadata": {"llmops_run": "lora-1"}}
    cloud.ray.jobs = [run]
    preview = cloud.provider.preview("one", ClusterAction.SUSPEND)
    assert "run lora-1 (running)" in preview.stops
    assert any("2 worker pods" in line for line in preview.stops)
    assert preview.needs_confirmation


def test_the_rays_token_comes_from_the_secret_and_is_shown_nowhere(cloud: Cloud) -> None:
    info = cloud.provider.up(cloud.template())
    connection = cloud.provider.connect("one")
    sent = [headers for headers in cloud.ray.headers if "X-Ray-Authorization" in headers]
    assert sent
    token = sent[-1]["X-Ray-Authorization"].removeprefix("Bearer ")
    assert len(token) > 20
    assert all("admintok" not in str(headers) for headers in cloud.ray.headers)
    assert token not in repr(connection)
    assert token not in info.model_dump_json()
    assert "admintok" not in repr(connection) + info.model_dump_json()
