"""The faults of the stand-in do what tests of others rely on, and stop when healed."""

from __future__ import annotations

import json
import time

import httpx
import pytest

from tests.k8s.standin.process import StandIn
from tests.k8s.support.small_objects import RAYCLUSTERS, raycluster


def test_a_number_of_refusals(standin: StandIn, http: httpx.Client, namespace: str) -> None:
    path = RAYCLUSTERS.format(namespace)
    standin.fault("429", path="rayclusters", verb="list", count=2, retry_after=7)
    answers = [http.get(path) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [429, 429, 200]
    assert answers[0].headers["Retry-After"] == "7"
    standin.fault("503", path="rayclusters")
    assert http.get(path).status_code == 503
    assert http.get("/version").status_code == 200
    standin.heal()
    assert http.get(path).status_code == 200


def test_slow_denied_and_too_large(standin: StandIn, http: httpx.Client, namespace: str) -> None:
    path = RAYCLUSTERS.format(namespace)
    standin.fault("slow", seconds=0.3, count=1)
    started = time.monotonic()
    http.get(path)
    assert time.monotonic() - started > 0.29
    standin.fault("deny", verb="create", user="admin")
    assert http.post(path, json=raycluster("a")).status_code == 403
    standin.heal()
    standin.fault("too-large", limit=100)
    assert http.post(path, json=raycluster("a")).status_code == 413
    assert http.get(path).status_code == 200


def test_a_connection_is_cut(standin: StandIn, http: httpx.Client, namespace: str) -> None:
    standin.fault("drop", path="rayclusters", count=1)
    with pytest.raises(httpx.RemoteProtocolError):
        http.get(RAYCLUSTERS.format(namespace))
    assert http.get(RAYCLUSTERS.format(namespace)).status_code == 200


@pytest.mark.parametrize("kind", ["drop-watch", "close-watch", "410"])
def test_watches_end(standin: StandIn, http: httpx.Client, namespace: str, kind: str) -> None:
    path = RAYCLUSTERS.format(namespace)
    http.post(path, json=raycluster("a"))
    with http.stream("GET", path, params={"watch": "1"}) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines))["type"] == "ADDED"
        assert standin.stats()["watches"][path] == 1
        assert standin.fault(kind, path=namespace) == {"watches": 1}
        if kind == "drop-watch":
            with pytest.raises(httpx.RemoteProtocolError):
                next(lines)
        else:
            rest = [json.loads(line) for line in lines]
            assert [event["object"]["code"] for event in rest] == ([410] if kind == "410" else [])
    assert path not in standin.stats()["watches"]


def test_a_server_that_is_away() -> None:
    with StandIn(crd=None) as standin, standin.client() as http:
        path = "/api/v1/namespaces/default/pods"
        with http.stream("GET", path, params={"watch": "1"}) as answer:
            standin.fault("away", seconds=1.0)
            with pytest.raises(httpx.RemoteProtocolError):
                next(answer.iter_lines())
        with pytest.raises(httpx.ConnectError):
            http.get("/version")
        deadline = time.monotonic() + 60
        while True:
            try:
                assert http.get("/version").status_code == 200
                break
            except httpx.ConnectError:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_figures(standin: StandIn, http: httpx.Client, namespace: str) -> None:
    path = RAYCLUSTERS.format(namespace)
    standin.stats(reset=True)
    http.get(path)
    http.get(path)
    http.post(path, json=raycluster("a"))
    stats = standin.stats()
    assert stats["requests"][f"list {path}"] == 2
    assert stats["requests"][f"create {path}"] == 1
