"""The NetworkPolicy of a cluster: who may connect to its pods."""

from __future__ import annotations

from typing import Any, Final

from llmops_kernel.providers.kuberay.resource import names

METRICS_PORT: Final = 8080
"""KubeRay's `metrics-export-port` of all Ray pods."""


def network_policy(cluster: str, *, namespace: str, labels: dict[str, str]) -> dict[str, Any]:
    """Let the pods of a cluster reach each other, and others only two ports of them.

    The dashboard's port stays open to all, since the API server's service proxy connects from an
    address that no rule can name (a control-plane host, or an agent of it); it asks for the token.
    Metrics are for Prometheus. KubeRay's operator needs no other port of a RayCluster. Probes and
    port-forwards come from the pod's own node, which no policy blocks. What the pods connect to is
    not restricted.
    """
    pods = {"matchLabels": {names.RAY_CLUSTER_LABEL: cluster}}
    open_to_all = (names.DASHBOARD_PORT, METRICS_PORT)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": names.network_policy(cluster),
            "namespace": namespace,
            "labels": labels,
        },
        "spec": {
            "podSelector": pods,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": pods}]},
                {"ports": [{"protocol": "TCP", "port": port} for port in open_to_all]},
            ],
        },
    }
