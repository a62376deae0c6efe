"""Plug-in of Ray's job client: `ray job submit --address llmops_ray://namespace/cluster -- ...`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.dashboard.modules.dashboard_sdk import ClusterInfo

    from llmops_kernel.clusters.kuberay.relay import Relay
    from llmops_kernel.clusters.provider import Connection

_relays: dict[tuple[str, str | None], Relay] = {}


def get_job_submission_client_cluster_info(
    address: str,
    *,
    create_cluster_if_needed: bool | None = False,
    cookies: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    headers: dict[str, Any] | None = None,
    **_: Any,
) -> ClusterInfo:
    """`namespace/cluster`, `context/namespace/cluster`, or any name that `llmops ls` shows.

    Ray's client knows neither client certificates nor credentials that expire, and checks a
    followed log against public authorities only. So it talks to a relay on the loopback
    device of its own process, which has them all. Starts no cluster.
    """
    from ray.dashboard.modules.dashboard_sdk import ClusterInfo

    connection = _connection(address)
    if connection.route is None:
        where, own = connection.dashboard_url, connection.headers()
    else:
        relay = _relay(connection)
        where, own = relay.url, relay.headers
    return ClusterInfo(
        address=where, cookies=cookies, metadata=metadata, headers={**(headers or {}), **own}
    )


def _connection(address: str) -> Connection:
    # From the right: names of contexts contain slashes, namespaces and clusters do not.
    *context, namespace, name = ["", *address.strip("/").split("/")]
    if not namespace:
        from llmops_kernel.clusters.providers import provider_for

        return provider_for(name).connect(name)
    from llmops_kernel.clusters.kuberay.kube import open_kube
    from llmops_kernel.clusters.kuberay.kube_paths import raycluster_path
    from llmops_kernel.clusters.kuberay.status import access_of
    from llmops_kernel.clusters.kuberay.tunnel import open_route

    kube = open_kube("/".join(context).strip("/") or None)
    raycluster = kube.get(raycluster_path(namespace, name))
    return open_route(kube, raycluster, access_of(raycluster))


def _relay(connection: Connection) -> Relay:
    from llmops_kernel.clusters.kuberay.relay import Relay

    key = (connection.dashboard_url, connection.token)
    if key not in _relays:
        _relays[key] = Relay(connection)
    return _relays[key]
