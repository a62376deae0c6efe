"""Addresses for Ray's own job client: `ray job submit --address llmops_ray://cluster -- ...`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmops_kernel.providers.kuberay.api.client import open_kube
from llmops_kernel.providers.kuberay.api.paths import raycluster_path
from llmops_kernel.providers.kuberay.route.relay import Relay
from llmops_kernel.providers.kuberay.route.tunnel import connection_to
from llmops_kernel.providers.protocol import Connection
from llmops_kernel.providers.registry import provider_for
from llmops_kernel.store import paths

if TYPE_CHECKING:
    from ray.dashboard.modules.dashboard_sdk import ClusterInfo

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
    """Return where Ray's job client sends its requests.

    `address` is `namespace/cluster`, `context/namespace/cluster`, or a name that `llmops ls`
    shows. Ray's client supports neither client certificates nor credentials that expire, and
    verifies a followed log's certificate against public authorities only. For a cluster on
    Kubernetes it therefore connects to a relay on the loopback device of its own process, which
    handles all of these. Starts no cluster.
    """
    from ray.dashboard.modules.dashboard_sdk import ClusterInfo

    connection = _connection(address)
    if connection.route is None:
        url, own = connection.dashboard_url, connection.headers()
    else:
        relay = _relay(connection)
        url, own = relay.url, relay.headers
    return ClusterInfo(
        address=url, cookies=cookies, metadata=metadata, headers={**(headers or {}), **own}
    )


def _connection(address: str) -> Connection:
    # From the right: names of contexts contain slashes, namespaces and clusters do not.
    *context, namespace, name = ["", *address.strip("/").split("/")]
    if not namespace:
        return provider_for(name).connect(name)
    kube = open_kube("/".join(context).strip("/") or None)
    raycluster = kube.get(raycluster_path(namespace, name))
    return connection_to(kube, raycluster, home=paths.home())


def _relay(connection: Connection) -> Relay:
    key = (connection.dashboard_url, connection.token)
    if key not in _relays:
        _relays[key] = Relay(connection)
    return _relays[key]
