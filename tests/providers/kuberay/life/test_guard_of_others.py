"""Idle guards of several users of one namespace: on which clusters they act, and when not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.jobs.guard import GuardThread, guard_once
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.store.store import RunStore
from tests.k8s.standin.process import PolicyRule
from tests.providers.kuberay.conftest import Cloud
from tests.providers.kuberay.life.test_guard import OFTEN, lines_at_home, up, write_run
from tests.providers.kuberay.ray_dashboard import RayDashboard
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("farm")
ALL = PolicyRule(("", "ray.io", "authorization.k8s.io"), ("*",), ("*",))


@pytest.fixture
def alice(cloud: Cloud) -> RunStore:
    """The store of the user who makes `one`."""
    return RunStore(cloud.home)


@pytest.fixture
def bob(cloud: Cloud, tmp_path: Path) -> KubeRayProvider:
    """Another user, with a home and a token of his own."""
    cloud.standin.user("bob", "bobtok", [ALL], cloud.namespace)
    return KubeRayProvider(tmp_path / "bob")


def decisions(cloud: Cloud) -> list[tuple[str, str]]:
    """Type and reason of each event that guards have made of `one`."""
    uid = cloud.live()["metadata"]["uid"]
    with cloud.standin.client() as http:
        found = http.get(f"/api/v1/namespaces/{cloud.namespace}/events").json()["items"]
    ours = [one for one in found if one.get("reportingComponent") == "llmops-guard"]
    assert all(one["involvedObject"]["uid"] == uid for one in ours)
    return [(one["type"], one["reason"]) for one in ours]


def ended(cloud: Cloud, ray: RayDashboard, store: RunStore, tmp_path: Path) -> str:
    """An idle cluster with a run that has ended, whose journal is on the head only."""
    up(cloud, idle=OFTEN)
    run_id = write_run(store, cloud, ray, folder=tmp_path / "remote")
    ray.run("lora-1-1", status="SUCCEEDED", ago_s=5)
    time.sleep(1.2)
    return run_id


def test_a_guard_acts_on_clusters_of_its_own_user(
    cloud: Cloud, ray: RayDashboard, bob: KubeRayProvider, alice: RunStore, tmp_path: Path
) -> None:
    ended(cloud, ray, alice, tmp_path)
    with RayDashboard() as of_bob:
        pod = {"metadata": {"annotations": {"standin/address": of_bob.address}}}
        own = {"headGroupSpec": {"template": pod}}
        cloud.login("bobtok")
        bob.up(cloud.template("two", idle=OFTEN, raycluster=own))
        guard = GuardThread(store=RunStore(tmp_path / "bob"), providers=lambda: [bob], period_s=0.3)
        guard.start()
        # `one` was due before `two`, and comes before it in each round.
        until(lambda: cloud.live("two")["spec"].get("suspend") is True)
        guard.stop(timeout_s=30.0)
    assert "suspend" not in cloud.live()["spec"]
    assert "llmops.dev/idle-since" not in cloud.live()["metadata"]["annotations"]
    assert decisions_of(cloud, "one") == []
    # Whom he tells to, his guard watches it.
    bob.watch("one")
    assert [one.name for one in bob.guarded()] == ["one", "two"]


def decisions_of(cloud: Cloud, name: str) -> list[dict[str, Any]]:
    with cloud.standin.client() as http:
        found = http.get(f"/api/v1/namespaces/{cloud.namespace}/events").json()["items"]
    return [
        one
        for one in found
        if one.get("reportingComponent") == "llmops-guard" and one["involvedObject"]["name"] == name
    ]


def test_a_guard_refuses_while_the_head_has_journals_that_it_cannot_save(
    cloud: Cloud, ray: RayDashboard, bob: KubeRayProvider, alice: RunStore, tmp_path: Path
) -> None:
    run_id = ended(cloud, ray, alice, tmp_path)
    cloud.login("bobtok")
    for _ in range(2):
        report = guard_once(bob, "one", store=RunStore(tmp_path / "bob"))
        assert report.did == ""
        assert f"journals of 1 run that is not in this user's store ({run_id})" in report.trouble
        assert "--force" in report.trouble
    assert "suspend" not in cloud.live()["spec"]
    assert decisions(cloud) == [("Warning", "IdleGuardRefused")]
    ray.is_silent = True
    report = guard_once(bob, "one", store=RunStore(tmp_path / "bob"))
    assert report.did == ""
    ray.is_silent = False
    # The owner's guard saves them, acts and says so.
    cloud.login(cloud.standin.admin_token)
    assert guard_once(cloud.provider, "one", store=alice).did == "suspended"
    assert len(lines_at_home(alice, run_id)) == 3
    assert ("Normal", "IdleGuardSuspending") in decisions(cloud)
    said = {one["reason"]: one["message"] for one in decisions_of(cloud, "one")}
    assert "Suspending the cluster: nothing has run for" in said["IdleGuardSuspending"]


def test_a_run_that_its_user_deleted_holds_up_nothing(
    cloud: Cloud, ray: RayDashboard, alice: RunStore, tmp_path: Path
) -> None:
    alice.delete(ended(cloud, ray, alice, tmp_path))
    assert guard_once(cloud.provider, "one", store=alice).did == "suspended"


def test_journals_on_a_volume_hold_up_nothing(
    cloud: Cloud, ray: RayDashboard, alice: RunStore, bob: KubeRayProvider, tmp_path: Path
) -> None:
    ended(cloud, ray, alice, tmp_path)
    storage = {"runs": "/mnt/runs", "volumes": [{"mount": "/mnt", "claim": "team"}]}
    written = cloud.template(idle=OFTEN, storage=storage).model_dump_json()
    note = {"metadata": {"annotations": {"llmops.dev/template": written}}}
    cloud.patch("one", note, manager="llmops")
    until(lambda: guard_once(bob, "one", store=RunStore(tmp_path / "bob")).did == "suspended")


@pytest.mark.parametrize(("ahead_s", "words"), [(-3600, "ahead of"), (3600, "behind")])
def test_a_wrong_clock_stops_a_guard(
    cloud: Cloud, ray: RayDashboard, alice: RunStore, ahead_s: float, words: str
) -> None:
    up(cloud, idle={"suspend_after_s": 1.0 if ahead_s < 0 else 1800.0})
    time.sleep(1.2)
    with cloud.standin.faulty("clock", seconds=ahead_s):
        cloud.provider.keep("one", for_s=0)
        report = guard_once(cloud.provider, "one", store=alice)
    assert report.did == ""
    assert f"s {words} that of the API server of context standin" in report.trouble
    assert "timedatectl" in report.trouble
    assert "suspend" not in cloud.live()["spec"]


def test_the_clock_is_that_of_the_api_server(
    cloud: Cloud, ray: RayDashboard, alice: RunStore
) -> None:
    up(cloud, idle=OFTEN)
    time.sleep(1.2)
    with cloud.standin.faulty("clock", seconds=-40):
        cloud.provider.keep("one", for_s=0)
        report = guard_once(cloud.provider, "one", store=alice)
        assert (report.did, report.trouble) == ("", "")
        cloud.provider.keep("one", for_s=600)
        until_s = float(cloud.live()["metadata"]["annotations"]["llmops.dev/kept-until"])
        assert 500 < until_s - time.time() < 575
    cloud.provider.keep("one", for_s=0)
    assert guard_once(cloud.provider, "one", store=alice).did == "suspended"
