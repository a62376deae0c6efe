"""Whether this process runs inside the Kubernetes cluster that a context names."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from llmops_kernel.providers.kuberay.api.kubeconfig import is_in_cluster
from llmops_kernel.providers.kuberay.api.paths import IN_CLUSTER

if TYPE_CHECKING:
    from llmops_kernel.providers.kuberay.api.client import Kube

_OWN_NAMES: Final = frozenset(
    {"kubernetes", "kubernetes.default", "kubernetes.default.svc"}
    | {"kubernetes.default.svc.cluster.local"}
)


def is_inside(kube: Kube) -> bool:
    """Compare the API server's address: another cluster may have a Service of the same name."""
    if not is_in_cluster():
        return False
    if kube.context == IN_CLUSTER:
        return True
    host = urlsplit(kube.server).hostname
    return host in _OWN_NAMES or host == os.environ.get("KUBERNETES_SERVICE_HOST")


def service_host(service: str, *, namespace: str) -> str:
    return f"{service}.{namespace}.svc"


def resolves(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except OSError:
        return False
