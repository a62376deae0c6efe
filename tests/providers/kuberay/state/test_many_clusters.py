"""What many clusters and many workers cost the API server, counted there."""

from __future__ import annotations

import statistics
import time

from llmops_kernel.providers.kuberay.api.errors import KubeUnreachable
from llmops_kernel.providers.protocol import ClusterInfo, ClusterState
from tests.benchmarks.kuberay import objects as scale
from tests.providers.kuberay.conftest import Cloud
from tests.waiting import until

GET_S = 0.1


def placed(cloud: Cloud, body: scale.Body) -> scale.Body:
    return {**body, "metadata": {**body["metadata"], "namespace": cloud.namespace}}


def counted(cloud: Cloud, verb: str, path: str) -> int:
    return cloud.standin.stats()["requests"].get(f"{verb} {path}", 0)


def test_sixty_clusters_cost_one_list_and_one_watch(cloud: Cloud) -> None:
    for number in range(60):
        for body in scale.one_of_many(number, cloud.ray.address):
            cloud.standin.put(placed(cloud, body))
    # The stand-in may be busy for a while with what was just put into it.
    infos = until(lambda: _listed(cloud))
    assert len(infos) == 60
    until(lambda: len(set(cloud.ray.asked)) >= 1)
    states = [info.state for info in infos]
    assert states.count(ClusterState.STOPPED) == 12
    assert states.count(ClusterState.READY) == 42
    for _ in range(5):
        cloud.provider.list()
    assert counted(cloud, "list", cloud.path) == 1
    assert counted(cloud, "watch", cloud.path) == 1
    # Every Ray is asked in the end, a few at a time, and none again and again.
    until(lambda: [*map(_nodes, cloud.provider.list())].count(1) == 42)
    asked = cloud.ray.asked.count("/api/version")
    assert 42 <= asked < 3 * 42, asked


def _listed(cloud: Cloud) -> list[ClusterInfo]:
    try:
        return cloud.provider.list()
    except KubeUnreachable:
        return []


def _nodes(info: object) -> object:
    return getattr(info, "num_nodes", None)


def test_status_of_three_hundred_workers_asks_the_api_server_rarely(cloud: Cloud) -> None:
    workers = 300
    for number in range(6):
        cloud.standin.put(scale.node(number))
    for number in range(workers):
        cloud.standin.put(placed(cloud, scale.worker_pod(number, ready=number > 5)))
    for body in (scale.head_pod("big", "", cloud.ray.address), scale.head_service("big", "")):
        cloud.standin.put(placed(cloud, body))
    cloud.standin.put(placed(cloud, scale.big_raycluster(workers, ready=workers - 6)))
    info = until(lambda: _explained(cloud))
    assert "6 of 300 workers" in info.waiting[0].message
    assert info.groups[0].ready == workers - 6
    before = cloud.standin.stats()["requests"]["*"]
    times = []
    for _ in range(100):
        began_s = time.perf_counter()
        cloud.provider.get("big")
        times.append(time.perf_counter() - began_s)
        time.sleep(0.01)
    # A hundred looks within two seconds or so: one or two rounds of questions, no more.
    assert cloud.standin.stats()["requests"]["*"] - before < 40
    assert statistics.median(times) < GET_S
    assert counted(cloud, "watch", f"/api/v1/namespaces/{cloud.namespace}/pods") == 1
    with cloud.standin.client() as http:
        for number in range(6):
            http.delete(f"/api/v1/nodes/{scale.node(number)['metadata']['name']}")


def _explained(cloud: Cloud) -> object:
    info = cloud.provider.get("big")
    return info if info.waiting and info.groups[0].ready else None
