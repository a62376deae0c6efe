"""The stand-in is quick and lean enough for a thousand pods that report all the time."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from typing import Any

import pytest

from tests.k8s.standin.process import StandIn
from tests.k8s.support.small_objects import RAYCLUSTERS, pod, raycluster

PODS = "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}


def big_pod(name: str) -> dict[str, Any]:
    """About as much as a worker's pod says."""
    body = pod(name)
    body["spec"]["containers"][0]["env"] = [
        {"name": f"V{number}", "value": "x" * 40} for number in range(40)
    ]
    return body


async def _load(url: str, context: ssl.SSLContext, rounds: int) -> None:
    """All pods report as often as this, over 8 connections."""
    import aiohttp

    connector = aiohttp.TCPConnector(ssl=context, limit=8)
    headers = {"Authorization": f"Bearer {StandIn.admin_token}"}

    async with aiohttp.ClientSession(url, connector=connector, headers=headers) as session:

        async def patch(name: str, number: int) -> None:
            moment = f"2026-01-01T00:00:{number % 60:02}Z"
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": moment}
            body = {"status": {"phase": "Running", "conditions": [ready], "message": str(number)}}
            async with session.patch(f"{PODS}/{name}/status", json=body, headers=MERGE) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()

        for number in range(rounds):
            await asyncio.gather(*(patch(f"p{index}", number) for index in range(1000)))


@pytest.mark.slow
def test_a_thousand_pods_cost_little_and_ever_the_same() -> None:
    """In seconds of the server's processor, which other programs do not change."""
    with StandIn(crd=None, log_length=1000) as standin, standin.client() as http:
        for index in range(1000):
            assert http.post(PODS, json=big_pod(f"p{index}")).status_code == 201
        context = ssl.create_default_context(cafile=str(standin.ca_file))
        # A watcher that reads nothing must not make the server keep everything for it.
        with http.stream("GET", PODS, params={"watch": "1"}):
            asyncio.run(_load(standin.url, context, 2))
            # By now the log of changes is as long as it gets.
            full = standin.stats()
            asyncio.run(_load(standin.url, context, 3))
            after = standin.stats()
        assert len(http.get(PODS).json()["items"]) == 1000
        listed = standin.stats()["cpu_s"] - after["cpu_s"]
    patched = (after["cpu_s"] - full["cpu_s"]) / 3000
    mb = after["rss"] / 2**20
    figures = f"{1000 * patched:.2f} ms a patch, {1000 * listed:.0f} ms a list, {mb:.0f} MB"
    print(figures)
    assert patched < 0.006, figures
    assert listed < 0.5, figures
    assert after["rss"] < full["rss"] * 1.1, figures
    assert after["log"] <= 2 * 1000 + 1000


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


def test_two_hundred_clusters_are_listed_at_once(standin: StandIn, namespace: str) -> None:
    path = RAYCLUSTERS.format(namespace)
    with standin.client() as http:
        for index in range(200):
            assert http.post(path, json=raycluster(f"c{index}")).status_code == 201
        before = standin.stats()["cpu_s"]
        found = http.get(path)
        spent = standin.stats()["cpu_s"] - before
    assert len(found.json()["items"]) == 200
    assert spent < 0.1
