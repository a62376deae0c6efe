"""A queued cluster that is suspended keeps its head: runs, journals and guards know that."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from llmops_kernel.api.cluster_handle import Cluster
from llmops_kernel.errors import ClusterStateError, HistoryError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.follow import Follower
from llmops_kernel.jobs.guard import guard_once
from llmops_kernel.jobs.history import require_no_other_runs
from llmops_kernel.jobs.observe import Observer
from llmops_kernel.providers.capabilities import Act
from llmops_kernel.providers.kuberay.state.discovery import KubeScope, may_be_at
from llmops_kernel.providers.protocol import ClusterAction, ClusterState
from llmops_kernel.store.store import RunStore
from tests.providers.kuberay.conftest import Cloud
from tests.providers.kuberay.life.test_guard import lines_at_home, up, write_run
from tests.providers.kuberay.ray_dashboard import RayDashboard
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("farm")
LINES = ["line 0", "line 1", "line 2"]


@pytest.fixture
def run_id(cloud: Cloud, ray: RayDashboard, store: RunStore, tmp_path: Path) -> str:
    """A run that works on a queued cluster whose workers were suspended."""
    up(cloud)
    label = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}}
    cloud.patch("one", label, manager="kubectl")
    made = write_run(store, cloud, ray, folder=tmp_path / "remote")
    ray.run("lora-1-1", status="RUNNING")
    until(lambda: cloud.provider.get("one").queue == "team-a")
    cloud.provider.suspend("one")
    return made


def test_its_runs_are_still_followed_read_and_stopped(
    cloud: Cloud, ray: RayDashboard, store: RunStore, run_id: str
) -> None:
    info = until(lambda: _known(cloud))
    assert (info.state, info.head_runs, info.is_gone) == (ClusterState.STOPPED, True, False)
    assert info.jobs_running == 1
    assert Observer(store, run_id, provider=cloud.provider, grace_s=0.1).check() is None
    assert store.view(run_id).state != "FAILED"
    with Follower(store, run_id, connection=lambda: cloud.provider.connect("one")) as follower:
        until(lambda: follower.poll() or lines_at_home(store, run_id) == LINES)
    with JobsClient(cloud.provider.connect("one"), cluster="one") as client:
        assert client.stop("lora-1-1")
    # It has ended, and nobody wrote that down: the observer still asks its Ray.
    end = Observer(store, run_id, provider=cloud.provider, grace_s=0.1).check()
    assert end is not None
    assert end.state == "STOPPED"


def _known(cloud: Cloud) -> object:
    info = cloud.provider.get("one")
    return info if info.jobs_running is not None else None


def test_nothing_is_submitted_to_a_head_without_workers(cloud: Cloud, run_id: str) -> None:
    with pytest.raises(ClusterStateError, match="scaled to zero workers") as caught:
        Cluster("one", provider=cloud.provider).ready_info()
    assert caught.value.remedy == "llmops resume one"


@pytest.mark.parametrize(
    ("num_cpus", "unless"), [(0, ""), (2, ", unless all of its workers are on the head")]
)
def test_a_suspend_knows_that_a_run_may_train_on_the_head(
    cloud: Cloud, ray: RayDashboard, num_cpus: int, unless: str
) -> None:
    head = {"cpus": "2", "memory": "2Gi", "num_cpus": num_cpus}
    cloud.provider.up(cloud.template(queue="team-a", head=head), wait=False)
    cloud.provider.wait("one", timeout_s=30)
    ray.run("lora-1-1")
    ray.jobs[-1]["metadata"] = {"llmops_run": "lora-1"}
    listed = until(lambda: _listed(cloud))
    assert listed == (f"run lora-1 (running){unless}", "2 worker pods")


def _listed(cloud: Cloud) -> tuple[str, ...]:
    stops = cloud.provider.preview("one", ClusterAction.SUSPEND).stops
    return stops if len(stops) > 1 else ()


def test_a_delete_shows_the_run_and_brings_its_history_home(
    cloud: Cloud, ray: RayDashboard, store: RunStore, run_id: str
) -> None:
    preview = cloud.provider.preview("one", ClusterAction.DELETE)
    assert any("lora-1" in line for line in preview.stops)
    assert any("the head pod" in line for line in preview.stops)
    cluster = Cluster("one", provider=cloud.provider)
    ray.is_silent = True
    with pytest.raises(HistoryError, match="cannot be archived"):
        cluster.delete()
    ray.is_silent = False
    cluster.delete()
    assert cloud.live()["code"] == 404
    assert lines_at_home(store, run_id) == LINES


def test_others_journals_on_it_are_not_forgotten(cloud: Cloud, run_id: str, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="not in this user's store"):
        require_no_other_runs(cloud.provider, "one", store=RunStore(tmp_path / "bob"))


def test_a_guard_lets_its_runs_end_before_it_deletes_it(
    cloud: Cloud, ray: RayDashboard, store: RunStore, run_id: str
) -> None:
    idle = '{"time_to_live_s": 0.5, "at_end": "delete", "drain_s": 60}'
    annotation = {"metadata": {"annotations": {"llmops.dev/idle": idle}}}
    cloud.patch("one", annotation, manager="kubectl")
    time.sleep(0.6)
    report = until(lambda: _acted(cloud, Act.DRAIN))
    assert report.did == "asked 1 job to stop"
    assert ray.stops == ["lora-1-1"]
    report = until(lambda: _acted(cloud, Act.DELETE))
    assert (report.did, report.trouble) == ("deleted", "")
    # `up` may create one of that name elsewhere, also while this context is away.
    assert not may_be_at(cloud.home, KubeScope("standin", cloud.namespace), "one")
    assert lines_at_home(store, run_id) == LINES


def _acted(cloud: Cloud, act: Act) -> object:
    report = guard_once(cloud.provider, "one")
    return report if report.state.act is act and report.did else None
