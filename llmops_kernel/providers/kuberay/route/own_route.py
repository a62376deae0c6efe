"""The route to a RayCluster that this user has agreed to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.providers.kuberay.resource import names, own_clusters
from llmops_kernel.providers.kuberay.resource.objects import Obj, one_line
from llmops_kernel.providers.kuberay.route.tunnel import open_route
from llmops_kernel.providers.protocol import Connection

if TYPE_CHECKING:
    from llmops_kernel.providers.kuberay.api.client import Kube


def connection_to(kube: Kube, raycluster: Obj, *, home: Path) -> Connection:
    """Connect to a RayCluster; its token goes to no address that only its annotation names.

    Raises KubeError, ClusterUnreachableError, MissingDependencyError.
    """
    try:
        return open_route(
            kube,
            raycluster,
            access=own_clusters.access_of(home, raycluster),
            own_secret=own_clusters.read(home, raycluster).secret,
        )
    except ClusterUnreachableError as error:
        url = own_clusters.refused_url(home, raycluster)
        if url is None:
            raise
        raise ClusterUnreachableError(
            f"{error.message}. Its annotation {names.ACCESS} names {one_line(repr(url))}, which"
            f" anybody who may change the cluster can set: no token is sent there",
            remedy=f"{error.remedy}; if you know that address, set access.url to it in your own"
            f" template of the cluster, and run `llmops up` with it",
        ) from error
