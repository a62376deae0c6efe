"""One list and one watch a namespace, which survive whatever happens to them."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from llmops_kernel.providers.kuberay.api.cache import (
    Cache,
    close_caches,
    rayclusters_of,
    slim_raycluster,
)
from llmops_kernel.providers.kuberay.api.client import Kube, KubeError, open_kube
from llmops_kernel.providers.kuberay.api.paths import raycluster_path
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.providers.protocol import ClusterState
from tests.k8s.standin.process import PolicyRule
from tests.providers.kuberay.conftest import Cloud
from tests.waiting import until


def raycluster(name: str) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"name": "ray", "image": "rayproject/ray:2.60.0"}]}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": {"headGroupSpec": {"template": pod}},
    }


def names(cloud: Cloud) -> set[str]:
    return set(rayclusters_of(open_kube(), cloud.namespace).snapshot().items)


def requests(cloud: Cloud, verb: str) -> int:
    return cloud.standin.stats()["requests"].get(f"{verb} {cloud.path}", 0)


def open_watches(cloud: Cloud) -> int:
    return cloud.standin.stats()["watches"].get(cloud.path, 0)


def test_many_lookers_cost_one_list_and_one_watch(cloud: Cloud) -> None:
    for number in range(40):
        cloud.create(raycluster(f"c{number}"))

    def look() -> None:
        for _ in range(5):
            assert len(KubeRayProvider(cloud.home).names()) == 40

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: open_watches(cloud) == 1)
    assert (requests(cloud, "list"), requests(cloud, "watch")) == (1, 1)


def test_only_rights_that_are_used_are_asked_for(cloud: Cloud) -> None:
    """Else the rights of a Role for one cluster would be in doubt, and asked for, for ever."""
    cloud.provider.up(cloud.template(), wait=False)
    cloud.standin.stats(reset=True)
    close_caches()
    assert KubeRayProvider(cloud.home).get("one").actions
    asked = cloud.standin.stats()["requests"]
    assert sum(n for key, n in asked.items() if "selfsubjectaccessreviews" in key) <= 2


class LookedAtTooLate(Cache):
    """Somebody looks in the moment in which its thread has decided to end."""

    late: Any = None

    def _is_over(self) -> bool:
        is_over = super()._is_over()
        if is_over and self.late is None:
            self._asked_s = time.monotonic() + 60
            self.late = self.snapshot(patience_s=5.0)
        return is_over


def test_a_look_at_the_end_of_an_unused_cache_starts_it_again(cloud: Cloud) -> None:
    cloud.create(raycluster("a"))
    cache = LookedAtTooLate(Kube(), raycluster_path(cloud.namespace), forget_s=0.1)
    try:
        assert set(cache.snapshot().items) == {"a"}
        until(lambda: open_watches(cloud) == 1)
        time.sleep(0.2)
        cloud.standin.fault("close-watch", path=cloud.path)  # It then sees that it is unused.
        until(lambda: cache.late is not None)
        assert set(cache.late.items) == {"a"}
    finally:
        cache.close()


def test_changes_arrive_without_being_asked_for(cloud: Cloud) -> None:
    assert names(cloud) == set()
    cloud.create(raycluster("a"))
    until(lambda: names(cloud) == {"a"})
    Kube().delete(f"{cloud.path}/a")
    until(lambda: names(cloud) == set())


@pytest.mark.parametrize("fault", ["drop-watch", "close-watch", "410"])
def test_a_watch_that_ends_goes_on(cloud: Cloud, fault: str) -> None:
    cloud.create(raycluster("before"))
    assert names(cloud) == {"before"}
    until(lambda: open_watches(cloud) == 1)
    cloud.standin.fault(fault, path=cloud.path)
    cloud.create(raycluster("meanwhile"))
    until(lambda: names(cloud) == {"before", "meanwhile"})
    Kube().delete(f"{cloud.path}/before")
    until(lambda: names(cloud) == {"meanwhile"})
    until(lambda: open_watches(cloud) == 1)


def test_what_was_deleted_while_nobody_watched_is_gone_after_410(cloud: Cloud) -> None:
    cloud.create(raycluster("a"))
    cloud.create(raycluster("b"))
    assert names(cloud) == {"a", "b"}
    with cloud.standin.faulty("503", path=cloud.path, verb="watch"):
        cloud.standin.fault("drop-watch", path=cloud.path)
        Kube().delete(f"{cloud.path}/a")
        cloud.standin.fault("410", path=cloud.path)
    until(lambda: names(cloud) == {"b"})


def test_while_the_api_server_is_away_the_last_state_is_reported_with_its_age(cloud: Cloud) -> None:
    cloud.create(raycluster("a"))
    assert cloud.provider.get("a").message == "The operator has not processed it yet"
    cloud.standin.fault("away", seconds=7)
    reported = until(lambda: _stale(cloud))
    assert "Last known state" in reported.message
    assert "API server of context standin" in reported.message
    assert reported.state is ClusterState.STARTING
    assert cloud.provider.names() == ("a",)
    until(lambda: "Last known state" not in cloud.provider.get("a").message, timeout_s=30)
    cloud.create(raycluster("b"))
    until(lambda: cloud.provider.names() == ("a", "b"))


def _stale(cloud: Cloud) -> Any:
    began_s = time.monotonic()
    info = cloud.provider.get("a")
    assert time.monotonic() - began_s < 5
    return info if "Last known state" in info.message else None


def test_list_without_watch_is_polled(cloud: Cloud) -> None:
    cloud.standin.user("pol", "pol-token", [PolicyRule(("ray.io",), ("rayclusters",), ("list",))])
    cloud.login("pol-token")
    assert names(cloud) == set()
    cloud.create(raycluster("a"))
    until(lambda: names(cloud) == {"a"})


def test_a_watch_that_was_refused_once_comes_back(cloud: Cloud) -> None:
    """An API server that starts answers 403 until it has read its roles."""
    assert names(cloud) == set()
    until(lambda: open_watches(cloud) == 1)
    cloud.standin.fault("deny", path=cloud.path, verb="watch", count=2)
    cloud.standin.fault("drop-watch", path=cloud.path)
    until(lambda: open_watches(cloud) == 0)
    cloud.create(raycluster("meanwhile"))
    until(lambda: names(cloud) == {"meanwhile"})
    until(lambda: open_watches(cloud) == 1)
    before = requests(cloud, "list")
    cloud.create(raycluster("after"))
    until(lambda: names(cloud) == {"meanwhile", "after"})
    assert requests(cloud, "list") == before


def test_a_list_that_was_refused_is_asked_for_again(cloud: Cloud) -> None:
    cloud.create(raycluster("a"))
    cloud.standin.fault("deny", path=cloud.path, verb="list", count=3)
    with pytest.raises(KubeError):
        names(cloud)
    until(lambda: _names_or_none(cloud) == {"a"})


def _names_or_none(cloud: Cloud) -> set[str] | None:
    try:
        return names(cloud)
    except KubeError:
        return None


def test_a_place_that_may_not_be_seen_says_so_to_all(cloud: Cloud) -> None:
    cloud.standin.user("nob", "nob-token", [])
    cloud.login("nob-token")
    for _ in range(2):
        with pytest.raises(KubeError, match="'nob' is not allowed to list rayclusters"):
            names(cloud)


def test_it_closes(cloud: Cloud) -> None:
    cache = Cache(Kube(), raycluster_path(cloud.namespace))
    cache.snapshot()
    until(lambda: open_watches(cloud) == 1)
    began_s = time.monotonic()
    cache.close()
    assert time.monotonic() - began_s < 5.0
    until(lambda: open_watches(cloud) == 0)


def test_an_answer_of_ours_is_seen_before_the_watch_shows_it(cloud: Cloud) -> None:
    cloud.create(raycluster("a"))
    names(cloud)
    with cloud.standin.faulty("slow", path=cloud.path, verb="watch", seconds=5):
        cloud.standin.fault("close-watch", path=cloud.path)
        cloud.provider.keep("a", for_s=60)
        assert cloud.provider.get("a").kept_until_s is not None
    close_caches()


def test_an_old_answer_does_not_bring_back_what_is_gone(cloud: Cloud) -> None:
    old = cloud.create(raycluster("a"))
    cache = rayclusters_of(open_kube(), cloud.namespace)
    assert set(cache.snapshot().items) == {"a"}
    Kube().delete(f"{cloud.path}/a")
    until(lambda: not cache.snapshot().items)
    cache.put(old)
    assert not cache.snapshot().items


def test_of_field_owners_only_the_last_change_is_kept() -> None:
    owners = [
        {"manager": "kueue", "time": "2026-11-23T10:00:01Z", "fieldsV1": {"f:spec": {}}},
        {"manager": "llmops", "time": "2026-11-23T10:00:00Z", "fieldsV1": {"f:spec": {}}},
        {"manager": "ray", "time": "2026-11-23T11:00:00Z", "subresource": "status"},
    ]
    found = {"metadata": {"name": "c", "managedFields": owners}, "spec": {}}
    assert slim_raycluster(found)["metadata"] == {
        "name": "c",
        "managedFields": [{"time": "2026-11-23T10:00:01Z"}],
    }
    assert slim_raycluster({"metadata": {"name": "c", "managedFields": None}})["metadata"] == {
        "name": "c"
    }
