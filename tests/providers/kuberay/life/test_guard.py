"""The guard and the saving of history against the stand-in of the API server."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.api.cluster_handle import Cluster
from llmops_kernel.config.models.kuberay_fields import IdlePolicy
from llmops_kernel.errors import HistoryError
from llmops_kernel.jobs.guard import GuardThread, Report, guard_once
from llmops_kernel.jobs.history import runs_to_archive
from llmops_kernel.metrics.events import EndEvent, WarningEvent
from llmops_kernel.providers.capabilities import Act, GuardState
from llmops_kernel.providers.protocol import ClusterState
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.store.store import RunStore
from tests.k8s.standin.farm import Farm
from tests.providers.kuberay.conftest import Cloud
from tests.providers.kuberay.ray_dashboard import RayDashboard
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("farm")
OFTEN = {"suspend_after_s": 1.0}


def up(cloud: Cloud, **fields: Any) -> None:
    cloud.provider.up(cloud.template(**fields))


def write_run(
    store: RunStore, cloud: Cloud, ray: RayDashboard, *, folder: Path, lines: int = 3
) -> str:
    """A run of `one` that has told so many lines on the cluster, and none at home."""
    run_id = "lora-1"
    record = RunRecord(
        run_id=run_id, name="lora", created_s=time.time(), cluster="one", provider="kuberay",
        config={},
    )  # fmt: skip
    store.create(record, config_yaml="name: lora\n")
    attempt = Attempt(
        number=1, submission_id="lora-1-1", cluster="one", dashboard_url="", submitted_s=time.time()
    )
    store.add_attempt(run_id, attempt)
    folder.mkdir()
    with closing(JournalWriter([folder], stream="1-worker-0", attempt=1)) as writer:
        for number in range(lines):
            writer.emit(WarningEvent(message=f"line {number}"))
    ray.files["llmops/lora-1/1-worker-0.jsonl"] = (folder / "1-worker-0.jsonl").read_bytes()
    ray.files["job-driver-lora-1-1.log"] = b"a driver's last words\n"
    return run_id


def lines_at_home(store: RunStore, run_id: str) -> list[str]:
    return [event.message for event in store.events(run_id) if isinstance(event, WarningEvent)]


def test_an_idle_cluster_is_suspended_and_its_history_is_home(
    cloud: Cloud, ray: RayDashboard, store: RunStore, tmp_path: Path
) -> None:
    up(cloud, idle=OFTEN)
    run_id = write_run(store, cloud, ray, folder=tmp_path / "remote")
    ray.run("lora-1-1", status="RUNNING")
    busy = guard_once(cloud.provider, "one")
    assert (busy.state.act, busy.did) == (Act.NONE, "")
    assert lines_at_home(store, run_id) == []
    ray.jobs[0] |= {"status": "SUCCEEDED", "end_time": int(time.time() * 1000) - 5000}
    until(lambda: guard_once(cloud.provider, "one").did == "suspended")
    assert cloud.live()["spec"]["suspend"] is True
    assert lines_at_home(store, run_id) == ["line 0", "line 1", "line 2"]
    log = store.folder(run_id).logs / "driver-1.log"
    assert log.read_text() == "a driver's last words\n"


def test_the_countdown_is_reported_and_keep_holds_it(cloud: Cloud, ray: RayDashboard) -> None:
    up(cloud, idle={"suspend_after_s": 7200.0, "time_to_live_s": 86400.0})
    info = until(lambda: _with_countdown(cloud))
    assert 7100 < info.suspends_at_s - time.time() <= 7201
    assert 86300 < info.ends_at_s - time.time() <= 86401
    state = guard_once(cloud.provider, "one").state
    assert state.suspends_at_s == pytest.approx(info.suspends_at_s, abs=5)
    assert float(cloud.live()["metadata"]["annotations"]["llmops.dev/idle-since"]) > 0
    cloud.provider.keep("one", for_s=4 * 3600)
    assert guard_once(cloud.provider, "one").state.suspends_at_s > time.time() + 3.9 * 3600


def _with_countdown(cloud: Cloud) -> Any:
    info = cloud.provider.get("one")
    return info if info.suspends_at_s is not None else None


def test_a_kept_cluster_is_left_alone(cloud: Cloud, ray: RayDashboard) -> None:
    up(cloud, idle=OFTEN)
    cloud.provider.keep("one", for_s=600)
    time.sleep(1.2)
    assert guard_once(cloud.provider, "one").did == ""
    cloud.provider.keep("one", for_s=0)
    assert guard_once(cloud.provider, "one").did == "suspended"


def test_many_guards_at_once_do_it_once(cloud: Cloud, ray: RayDashboard) -> None:
    up(cloud, idle=OFTEN)
    time.sleep(1.2)
    dids: list[str] = []
    start = threading.Barrier(4)

    def guard() -> None:
        start.wait()
        report = guard_once(cloud.provider, "one")
        dids.append(report.trouble or report.did)

    threads = [threading.Thread(target=guard) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(dids) <= {"suspended", ""}
    assert "suspended" in dids
    assert cloud.live()["metadata"]["generation"] == 2


def test_at_the_end_of_its_time_runs_are_asked_to_stop_first(
    cloud: Cloud, ray: RayDashboard, store: RunStore, tmp_path: Path
) -> None:
    policy = IdlePolicy(time_to_live_s=0.5, at_end="delete", drain_s=60).model_dump()
    up(cloud, idle=policy)
    run_id = write_run(store, cloud, ray, folder=tmp_path / "remote")
    ray.run("lora-1-1", status="RUNNING")
    # Before that half second is over a look does nothing.
    report = until(lambda: _acted(guard_once(cloud.provider, "one")))
    assert (report.state.act, report.did) == (Act.DRAIN, "asked 1 job to stop")
    assert ray.stops == ["lora-1-1"]
    assert store.view(run_id).state == "STOPPING"
    # It has stopped, so nothing is left to wait for.
    report = until(lambda: _acted(guard_once(cloud.provider, "one")))
    assert (report.state.act, report.did, report.trouble) == (Act.DELETE, "deleted", "")
    assert cloud.live()["code"] == 404
    assert len(lines_at_home(store, run_id)) == 3


def _acted(report: Report) -> Report | None:
    """Return a report only if the guard did something, which may take several looks."""
    return report if report.did else None


def test_a_silent_ray_holds_up_a_delete_and_a_dead_head_does_not(
    cloud: Cloud, ray: RayDashboard, store: RunStore, farm: Farm, tmp_path: Path
) -> None:
    up(cloud)
    write_run(store, cloud, ray, folder=tmp_path / "remote")
    ray.is_silent = True
    cluster = Cluster("one", provider=cloud.provider)
    with pytest.raises(HistoryError, match="cannot be archived"):
        cluster.delete()
    farm.stop_operator()  # Nobody makes the pod anew.
    try:
        head = next(p for p in farm.pods(cloud.namespace) if "head" in p["metadata"]["name"])
        head["status"] |= {"phase": "Failed", "containerStatuses": []}
        cloud.standin.put({"apiVersion": "v1", "kind": "Pod", **head})
        until(lambda: cloud.provider.head_is_gone("one"))
        cluster.delete()
    finally:
        farm.start_operator()
    assert cloud.live()["code"] == 404


def test_a_run_that_is_home_holds_up_nothing(
    cloud: Cloud, ray: RayDashboard, store: RunStore, tmp_path: Path
) -> None:
    up(cloud)
    run_id = write_run(store, cloud, ray, folder=tmp_path / "remote")
    folder = store.folder(run_id)
    with closing(JournalWriter([folder.journal], stream="1-worker-0", attempt=1)) as writer:
        writer.emit(EndEvent(state="SUCCEEDED"))
    folder.logs.mkdir(exist_ok=True)
    (folder.logs / "driver-1.log").write_text("done\n")
    assert runs_to_archive(store, "one") == ()
    ray.is_silent = True
    Cluster("one", provider=cloud.provider).suspend()
    until(lambda: cloud.provider.get("one").state is ClusterState.STOPPED)


def test_the_thread_guards_and_stops(cloud: Cloud, ray: RayDashboard) -> None:
    up(cloud, idle=OFTEN)
    others = set(threading.enumerate())  # Servers of other tests have a guard too.
    guard = GuardThread(providers=lambda: [cloud.provider], period_s=0.3)
    guard.start()
    until(lambda: cloud.live()["spec"].get("suspend") is True)
    guard.stop(timeout_s=30.0)
    mine = set(threading.enumerate()) - others
    assert not any(thread.name == "llmops-guard" for thread in mine)


def test_under_kueue_the_workers_go_and_the_head_stays(cloud: Cloud, ray: RayDashboard) -> None:
    up(cloud, idle=OFTEN)
    label = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}}
    cloud.patch("one", label, manager="kubectl")
    time.sleep(1.2)
    assert guard_once(cloud.provider, "one").did == "suspended"
    spec = cloud.live()["spec"]
    assert "suspend" not in spec
    assert spec["workerGroupSpecs"][0]["replicas"] == 0
    # Scaled to zero it is at rest: no guard does it again.
    assert guard_once(cloud.provider, "one").did == ""


@pytest.mark.parametrize("how", ["suspend", "queue", "delete"])
def test_a_keep_of_the_same_moment_wins(cloud: Cloud, ray: RayDashboard, how: str) -> None:
    """The guard has looked, and is about to act, when somebody keeps the cluster."""
    ending = {"time_to_live_s": 0.5, "at_end": "delete", "drain_s": 0.0}
    up(cloud, idle=ending if how == "delete" else OFTEN)
    if how == "queue":
        label = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}}
        cloud.patch("one", label, manager="kubectl")
    guarded = cloud.provider.guarded_cluster("one")
    due = Act.DELETE if how == "delete" else Act.SUSPEND
    state = until(lambda: _is_due(guarded, due))
    # It writes the event of its decision between its last look and the change.
    cloud.standin.fault("slow", method="POST", path="/events", seconds=2.0, count=1)
    with ThreadPoolExecutor(1) as pool:
        acted = pool.submit(guarded.act, state)
        time.sleep(1.0)
        annotation = {"llmops.dev/kept-until": f"{time.time() + 3600:.0f}"}
        cloud.patch("one", {"metadata": {"annotations": annotation}}, manager="kubectl")
        assert acted.result(timeout=30) is False
    spec = cloud.live()["spec"]
    assert not spec.get("suspend")
    assert spec["workerGroupSpecs"][0]["replicas"] == 2


def _is_due(guarded: Any, act: Act) -> GuardState | None:
    state = guarded.guard_state()
    return state if state is not None and state.act is act else None
