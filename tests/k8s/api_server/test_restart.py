"""An API server that is killed and started again has what it had, and refuses while it starts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.k8s.standin.api.auth import User
from tests.k8s.standin.api.state import State, kueue_definitions
from tests.k8s.standin.etcd import Etcd
from tests.k8s.standin.objects.kinds import NAMESPACE
from tests.k8s.standin.process import PolicyRule, StandIn
from tests.k8s.support.small_objects import RAYCLUSTERS, pod, raycluster

READ = PolicyRule(("ray.io",), ("rayclusters",), ("get", "list", "watch"))
APPLY = {"Content-Type": "application/apply-patch+yaml"}


@pytest.fixture
def standin() -> Iterator[StandIn]:
    with StandIn(has_disk=True, starting_s=2.0) as started:
        yield started


def answers(client: httpx.Client, path: str, *, until: int) -> list[tuple[int, str]]:
    """All different answers up to the first with this code, in their order."""
    found: list[tuple[int, str]] = []
    deadline_s = time.monotonic() + 60
    while not found or found[-1][0] != until:
        assert time.monotonic() < deadline_s, found
        answer = client.get(path)
        one = (answer.status_code, answer.json().get("message", ""))
        found += [one] if one not in found else []
        time.sleep(0.02)
    return found


def test_objects_users_and_owners_are_there_after_a_kill(standin: StandIn) -> None:
    namespace = standin.create_namespace("team")
    standin.user("bob", "bobtok", [READ], namespace)
    path = RAYCLUSTERS.format(namespace)
    with standin.client() as admin:
        owner = admin.post(path, json=raycluster("a")).json()
        pods = f"/api/v1/namespaces/{namespace}/pods"
        admin.post(pods, json=pod("of-a", owner=owner))
        first = {"metadata": {"name": "b"}, "apiVersion": "ray.io/v1", "kind": "RayCluster"}
        manager = {"fieldManager": "one"}
        body = first | {"spec": raycluster("b", suspend=True)["spec"]}
        admin.patch(f"{path}/b", content=json.dumps(body), params=manager, headers=APPLY)
        before = admin.get(path).json()

    standin.kill()
    with standin.client("bobtok") as bob, pytest.raises(httpx.ConnectError):
        bob.get(path)
    standin.start()
    with standin.client("bobtok") as bob:
        codes = answers(bob, path, until=200)
        assert [code for code, _ in codes] == [503, 403, 200]
        assert "before all known HTTP paths have been installed" in codes[0][1]
        assert 'User "bob" cannot list resource "rayclusters"' in codes[1][1]

    with standin.client() as admin:
        after = admin.get(path).json()
        assert after["items"] == before["items"]
        # What was read before is too old to go on from; a controller lists again.
        version = {"watch": "1", "resourceVersion": before["metadata"]["resourceVersion"]}
        with admin.stream("GET", path, params=version) as watch:
            assert json.loads(next(watch.iter_lines()))["object"]["code"] == 410
        # Whose fields are whose is known, and which pod goes with which cluster.
        other = json.dumps(first | {"spec": {"suspend": False}})
        manager = {"fieldManager": "two"}
        refused = admin.patch(f"{path}/b", content=other, params=manager, headers=APPLY)
        assert refused.status_code == 409
        admin.delete(f"{path}/a")
        gone(admin, pods)


def gone(client: httpx.Client, path: str) -> None:
    deadline_s = time.monotonic() + 60
    while client.get(path).json()["items"]:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def written(path: Path) -> tuple[list[int], State]:
    """A server's file: how long it is after each of three changes, and that server."""
    state, etcd = State(), Etcd(path)
    assert not etcd.restore(state)
    etcd.follow(state)
    state.make(NAMESPACE, {"metadata": {"name": "one"}})
    sizes = [path.stat().st_size]
    state.define(kueue_definitions()[0])
    state.auth.add("token", User("bob"), 60.0)
    sizes.append(path.stat().st_size)
    space = state.make(NAMESPACE, {"metadata": {"name": "two"}})
    state.store.remove(space)
    return [*sizes, path.stat().st_size], state


def test_a_record_that_was_not_whole_is_cut_off(tmp_path: Path) -> None:
    (first, second, third), old = written(tmp_path / "etcd")
    data = (tmp_path / "etcd").read_bytes()
    cut = tmp_path / "cut"
    for length in (third, *range(second - 12, second + 12), third - 1, first, 3):
        cut.write_bytes(data[:length])
        state = State()
        assert Etcd(cut).restore(state) == (length > 3)
        Etcd(cut).follow(state)
        names = {space.key[1] for space in state.store.list(NAMESPACE)}
        assert ("one" in names) == (length > 3)
        # The last word on the second is that it was deleted.
        assert ("two" in names) == (length == third - 1)
        assert ("token" in state.auth.tokens) == (length >= second)
        assert (state.registry.find("kueue.x-k8s.io", "v1beta1", "workloads") is not None) == (
            length > first
        )
        if length == third:
            assert state.store.version > old.store.version
        # It goes on from there.
        state.make(NAMESPACE, {"metadata": {"name": "three"}})
        again = State()
        assert Etcd(cut).restore(again)
        assert "three" in {space.key[1] for space in again.store.list(NAMESPACE)}
