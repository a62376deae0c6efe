"""What the recordings do not show: ownership, pages, watches, apply, quotas, graceful deletion."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest

from tests.k8s.standin.process import StandIn
from tests.k8s.support.small_objects import RAYCLUSTERS, pod, raycluster
from tests.waiting import until

MERGE = {"Content-Type": "application/merge-patch+json"}
PODS = "/api/v1/namespaces/default/pods"
APPLY = {"Content-Type": "application/apply-patch+yaml"}


@pytest.fixture
def path(namespace: str) -> str:
    return RAYCLUSTERS.format(namespace)


@pytest.fixture
def core(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}"


def ok(answer: httpx.Response) -> dict[str, Any]:
    assert answer.is_success, answer.text
    body: dict[str, Any] = answer.json()
    return body


def events(http: httpx.Client, path: str, **query: str) -> list[tuple[str, str]]:
    """Return type and name (or code) of each event of a short watch."""
    found = []
    with http.stream("GET", path, params={"watch": "1", "timeoutSeconds": "1"} | query) as answer:
        for line in answer.iter_lines():
            event = json.loads(line)
            about = event["object"]
            found.append(
                (event["type"], about.get("metadata", {}).get("name") or about.get("code"))
            )
    return found


def test_what_is_owned_goes_with_its_owner(http: httpx.Client, path: str, core: str) -> None:
    owner = ok(http.post(path, json=raycluster("owner")))
    ok(http.post(f"{core}/pods", json=pod("owned", owner=owner)))
    ok(http.delete(f"{path}/owner"))
    until(lambda: http.get(f"{core}/pods/owned").status_code == 404)


def test_foreground_deletion_waits_for_what_is_owned(
    http: httpx.Client, path: str, core: str
) -> None:
    owner = ok(http.post(path, json=raycluster("owner")))
    held = pod("owned", owner=owner)
    held["metadata"]["finalizers"] = ["test.io/hold"]
    ok(http.post(f"{core}/pods", json=held))
    ok(http.request("DELETE", f"{path}/owner", json={"propagationPolicy": "Foreground"}))
    until(lambda: "deletionTimestamp" in ok(http.get(f"{core}/pods/owned"))["metadata"])
    assert ok(http.get(f"{path}/owner"))["metadata"]["finalizers"] == ["foregroundDeletion"]
    ok(http.patch(f"{core}/pods/owned", json={"metadata": {"finalizers": None}}, headers=MERGE))
    until(lambda: http.get(f"{path}/owner").status_code == 404)


def test_orphans_stay(http: httpx.Client, path: str, core: str) -> None:
    owner = ok(http.post(path, json=raycluster("owner")))
    ok(http.post(f"{core}/pods", json=pod("owned", owner=owner)))
    ok(http.request("DELETE", f"{path}/owner", json={"propagationPolicy": "Orphan"}))
    until(lambda: http.get(f"{path}/owner").status_code == 404)
    assert "ownerReferences" not in ok(http.get(f"{core}/pods/owned"))["metadata"]


def test_an_object_whose_owner_is_gone_does_not_stay(
    http: httpx.Client, path: str, core: str
) -> None:
    owner = ok(http.post(path, json=raycluster("owner")))
    ok(http.delete(f"{path}/owner"))
    ok(http.post(f"{core}/pods", json=pod("late", owner=owner)))
    until(lambda: http.get(f"{core}/pods/late").status_code == 404)


def test_a_namespace_goes_with_all_in_it(standin: StandIn, http: httpx.Client) -> None:
    name = standin.create_namespace("short-lived")
    ok(http.post(f"/api/v1/namespaces/{name}/pods", json=pod("inside")))
    assert ok(http.delete(f"/api/v1/namespaces/{name}"))["status"]["phase"] == "Terminating"
    until(lambda: http.get(f"/api/v1/namespaces/{name}").status_code == 404)
    assert http.get(f"/api/v1/namespaces/{name}/pods/inside").status_code == 404


def test_a_json_patch_replaces_a_key_that_is_missing(http: httpx.Client, path: str) -> None:
    """So does the real server, and Ray's autoscaler relies on it."""
    ok(http.post(path, json=raycluster("a")))
    headers = {"Content-Type": "application/json-patch+json"}
    patch = [{"op": "replace", "path": "/spec/suspend", "value": True}]
    assert ok(http.patch(f"{path}/a", json=patch, headers=headers))["spec"]["suspend"] is True
    patch = [{"op": "replace", "path": "/spec/absent/suspend", "value": True}]
    assert http.patch(f"{path}/a", json=patch, headers=headers).status_code == 422


def test_pages_of_a_list(http: httpx.Client, core: str) -> None:
    for number in range(7):
        ok(http.post(f"{core}/pods", json=pod(f"p{number}")))
    names, token = [], ""
    while True:
        page = ok(http.get(f"{core}/pods", params={"limit": 3, "continue": token}))
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert names == [f"p{number}" for number in range(7)]
    assert "kind" not in page["items"][0]


def test_a_page_after_compaction_is_gone(standin: StandIn, http: httpx.Client, core: str) -> None:
    for name in ("a", "b"):
        ok(http.post(f"{core}/pods", json=pod(name)))
    first = ok(http.get(f"{core}/pods", params={"limit": 1}))
    standin.fault("410")
    token = first["metadata"]["continue"]
    answer = http.get(f"{core}/pods", params={"limit": 1, "continue": token})
    assert (answer.status_code, answer.json()["reason"]) == (410, "Expired")


def test_many_watchers_see_the_same(http: httpx.Client, path: str) -> None:
    version = ok(http.get(path))["metadata"]["resourceVersion"]
    seen: list[list[tuple[str, str]]] = []
    watchers = [
        threading.Thread(target=lambda: seen.append(events(http, path, resourceVersion=version)))
        for _ in range(5)
    ]
    for watcher in watchers:
        watcher.start()
    ok(http.post(path, json=raycluster("a")))
    ok(http.patch(f"{path}/a", json={"spec": {"suspend": True}}, headers=MERGE))
    ok(http.delete(f"{path}/a"))
    for watcher in watchers:
        watcher.join()
    assert seen == [[("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]] * 5


def test_a_watch_from_before_a_compaction_is_reported(
    standin: StandIn, http: httpx.Client, path: str
) -> None:
    version = ok(http.get(path))["metadata"]["resourceVersion"]
    ok(http.post(path, json=raycluster("a")))
    standin.fault("410")
    assert events(http, path, resourceVersion=version) == [("ERROR", 410)]


def test_bookmarks_come_when_asked_for() -> None:
    with StandIn(bookmark_s=0.2, crd=None) as standin, standin.client() as http:
        seen = events(http, PODS, resourceVersion="2000", allowWatchBookmarks="true")
        assert seen.count(("BOOKMARK", None)) >= 3
        assert events(http, PODS, resourceVersion="2000") == []


def test_no_event_is_lost_between_bookmarks() -> None:
    """Many bookmarks while much happens: each watcher still sees every version of each pod."""
    numbers = 400
    query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": "2000"}
    with StandIn(crd=None, bookmark_s=0.01) as standin:
        seen: list[list[str]] = []
        watchers = [
            threading.Thread(target=lambda: seen.append(_versions(standin, query, numbers)))
            for _ in range(4)
        ]
        with standin.client() as http:
            assert http.post(PODS, json=pod("p")).status_code == 201
            query["resourceVersion"] = http.get(PODS).json()["metadata"]["resourceVersion"]
            for watcher in watchers:
                watcher.start()
            for number in range(numbers):
                body = {"status": {"message": str(number)}}
                assert http.patch(f"{PODS}/p/status", json=body, headers=MERGE).is_success
            for watcher in watchers:
                watcher.join(30)
    assert seen == [[str(number) for number in range(numbers)]] * 4


def _versions(standin: StandIn, query: dict[str, str], count: int) -> list[str]:
    found: list[str] = []
    with standin.client() as http, http.stream("GET", PODS, params=query) as answer:
        for line in answer.iter_lines():
            event = json.loads(line)
            if event["type"] == "MODIFIED":
                found.append(event["object"]["status"]["message"])
            if len(found) == count:
                break
    return found


def test_apply_merges_lists_by_key(http: httpx.Client, core: str) -> None:
    """Two managers own one container's different variables."""
    mine = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]}]},
    }
    ok(http.patch(f"{core}/pods/p?fieldManager=one", json=mine, headers=APPLY))
    theirs = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"containers": [{"name": "c", "env": [{"name": "B", "value": "2"}]}]},
    }
    ok(http.patch(f"{core}/pods/p?fieldManager=two", json=theirs, headers=APPLY))
    theirs["spec"]["containers"][0]["env"] = []  # type: ignore[index]
    both = ok(http.get(f"{core}/pods/p"))["spec"]["containers"]
    assert [item["name"] for item in both[0]["env"]] == ["A", "B"]
    left = ok(http.patch(f"{core}/pods/p?fieldManager=two", json=theirs, headers=APPLY))
    assert [item["name"] for item in left["spec"]["containers"][0]["env"]] == ["A"]


def test_force_takes_the_field(http: httpx.Client, path: str) -> None:
    one = f"{path}/a?fieldManager=one"
    two = f"{path}/a?fieldManager=two"
    ok(http.patch(one, json=raycluster("a", suspend=True), headers=APPLY))
    refused = http.patch(two, json=raycluster("a", suspend=False), headers=APPLY)
    assert refused.status_code == 409
    taken = ok(http.patch(f"{two}&force=true", json=raycluster("a", suspend=False), headers=APPLY))
    owners = {
        entry["manager"]: entry["fieldsV1"]["f:spec"]
        for entry in taken["metadata"]["managedFields"]
    }
    assert "f:suspend" in owners["two"]
    assert "f:suspend" not in owners["one"]


def test_an_update_is_named_in_a_conflict(http: httpx.Client, path: str) -> None:
    ok(http.post(f"{path}?fieldManager=kubectl", json=raycluster("a", suspend=True)))
    refused = http.patch(
        f"{path}/a?fieldManager=x", json=raycluster("a", suspend=False), headers=APPLY
    )
    text = refused.json()["message"]
    assert 'conflict with "kubectl" using ray.io/v1: .spec.suspend' in text


def test_a_dry_run_changes_nothing(http: httpx.Client, path: str) -> None:
    made = ok(http.post(path, json=raycluster("a")))
    tried = f"{path}/a?dryRun=All"
    changed = ok(http.patch(tried, json={"spec": {"suspend": True}}, headers=MERGE))
    assert changed["spec"]["suspend"] is True
    ok(http.delete(tried))
    assert ok(http.get(f"{path}/a")) == made


def test_a_quota_refuses_what_goes_over(
    standin: StandIn, http: httpx.Client, core: str, path: str, namespace: str
) -> None:
    hard = {"requests.nvidia.com/gpu": "8", "count/rayclusters.ray.io": "1"}
    quota = {"metadata": {"name": "gpus"}, "spec": {"hard": hard}}
    ok(http.post(f"{core}/resourcequotas", json=quota))
    body = pod("p1")
    body["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "6"}}
    ok(http.post(f"{core}/pods", json=body))
    body["metadata"]["name"] = "p2"
    refused = http.post(f"{core}/pods", json=body)
    assert refused.status_code == 403
    assert refused.json()["message"] == (
        'pods "p2" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=6, '
        "used: requests.nvidia.com/gpu=6, limited: requests.nvidia.com/gpu=8"
    )
    ok(http.post(path, json=raycluster("a")))
    assert http.post(path, json=raycluster("b")).status_code == 403
    used = {"requests.nvidia.com/gpu": "6", "count/rayclusters.ray.io": "1"}
    scope = f"{core}/resourcequotas/gpus"
    until(lambda: ok(http.get(scope)).get("status", {}).get("used") == used)


def test_pods_of_a_graceful_node_are_marked_first(
    standin: StandIn, http: httpx.Client, core: str
) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "graceful", "annotations": {"standin/graceful": "yes"}},
    }
    standin.put(node)
    body = pod("p")
    body["spec"]["nodeName"] = "graceful"
    ok(http.post(f"{core}/pods", json=body))
    marked = ok(http.delete(f"{core}/pods/p"))["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 30
    ok(http.delete(f"{core}/pods/p?gracePeriodSeconds=0"))
    assert http.get(f"{core}/pods/p").status_code == 404


def test_another_definition_takes_the_place_of_the_first(
    standin: StandIn, http: httpx.Client, namespace: str
) -> None:
    def definition(field: str) -> dict[str, Any]:
        spec = {"type": "object", "properties": {field: {"type": "string"}}}
        return {
            "metadata": {"name": "things.test.io"},
            "spec": {
                "group": "test.io",
                "names": {"kind": "Thing", "plural": "things", "singular": "thing"},
                "scope": "Namespaced",
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {
                            "openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}
                        },
                    }
                ],
            },
        }

    scope = f"/apis/test.io/v1/namespaces/{namespace}/things"
    thing = {"apiVersion": "test.io/v1", "kind": "Thing", "metadata": {"name": "t"}}
    strict = {"fieldValidation": "Strict"}
    standin.install_crd(definition("old"))
    assert http.post(scope, json={**thing, "spec": {"new": "x"}}, params=strict).status_code == 400
    ok(http.post(scope, json={**thing, "spec": {"old": "x"}}))
    standin.install_crd(definition("new"))
    assert ok(http.get(f"{scope}/t"))["spec"] == {"old": "x"}
    second = {**thing, "metadata": {"name": "u"}, "spec": {"new": "x"}}
    ok(http.post(scope, json=second, params=strict))
    standin.remove_crd("things", "test.io")
    assert http.get(scope).text == "404 page not found\n"
