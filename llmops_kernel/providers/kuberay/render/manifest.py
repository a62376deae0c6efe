"""Renders a cluster template as a RayCluster: pure and stable, without times or random names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.models.kuberay_fields import IdlePolicy
from llmops_kernel.config.models.kuberay_pods import WorkerGroup
from llmops_kernel.config.reading.document import dump
from llmops_kernel.metrics.run_gauges import dashboard_manifest
from llmops_kernel.providers.kuberay.render import tls, warm_files
from llmops_kernel.providers.kuberay.render.pods import (
    head_pod,
    overlaid,
    ray_start_params,
    worker_pod,
)
from llmops_kernel.providers.kuberay.resource import names

Raw = dict[str, Any]
AUTH_FIELD: Final = "authOptions"
_RESOURCES: Final = ("num-cpus", "num-gpus", "memory", "resources")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The objects that are sent to the API server."""

    raycluster: Raw
    companions: tuple[Raw, ...] = ()
    """Objects that the pods need. The RayCluster becomes their owner once it has a uid."""
    needs_token: bool = False
    """The CRD has no token authentication: a Secret with the token must be created too."""

    def to_yaml(self, *, with_companions: bool = True) -> str:
        """Return the YAML for `kubectl apply --server-side -f -`, the RayCluster first."""
        companions = self.companions if with_companions else ()
        return "---\n".join(dump(body) for body in (self.raycluster, *companions))


def render(
    template: KubeRayTemplate, *, namespace: str, missing_fields: Iterable[str] = ()
) -> Manifest:
    """Render a template without the fields of the spec that the installed CRD lacks."""
    own_token = AUTH_FIELD in set(missing_fields)
    raycluster = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {
            "name": template.name,
            "namespace": namespace,
            "labels": _labels(template),
            "annotations": _annotations(template),
        },
        "spec": _without_double_resources(
            overlaid(_spec(template, own_token=own_token), template.raycluster)
        ),
    }
    return Manifest(
        raycluster=raycluster,
        companions=tuple(_companions(template, namespace=namespace)),
        needs_token=own_token,
    )


def _companions(template: KubeRayTemplate, *, namespace: str) -> Iterator[Raw]:
    labels = _own_labels(template)
    if template.warm.enabled:
        yield warm_files.config_map(template.name, namespace=namespace, labels=labels)
    if template.tls.issuer:
        yield tls.certificate(
            template.tls, cluster=template.name, namespace=namespace, labels=labels
        )
    if template.metrics.pod_monitor:
        yield pod_monitor(template, namespace=namespace)
    if template.metrics.dashboard:
        yield dashboard(template, namespace=namespace)
    if template.network_policy:
        yield network_policy(template.name, namespace=namespace, labels=labels)


def _own_labels(template: KubeRayTemplate) -> dict[str, str]:
    return {
        **template.labels,
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        names.CLUSTER_NAME_LABEL: template.name,
    }


def _labels(template: KubeRayTemplate) -> dict[str, str]:
    labels = _own_labels(template)
    if template.queue:
        labels[names.QUEUE_LABEL] = template.queue
    if template.queue_priority:
        labels[names.QUEUE_PRIORITY_LABEL] = template.queue_priority
    return labels


def _annotations(template: KubeRayTemplate) -> dict[str, str]:
    annotations = {
        names.TEMPLATE: _compact(template.model_dump(mode="json")),
        names.ACCESS: _compact(template.access.model_dump(mode="json")),
    }
    if template.idle != IdlePolicy():
        annotations[names.IDLE] = _compact(template.idle.model_dump(mode="json"))
    if template.queue:
        # Kueue resizes a running cluster only as an elastic job; any other loses its head and jobs.
        annotations[names.ELASTIC_ANNOTATION] = "true"
    return annotations


def _compact(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def _spec(template: KubeRayTemplate, *, own_token: bool) -> Raw:
    spec: Raw = {"rayVersion": template.ray_version}
    if not own_token:
        spec[AUTH_FIELD] = {"mode": "token"}
    if template.managed_by:
        spec["managedBy"] = template.managed_by
    if template.autoscaling.enabled:
        spec["enableInTreeAutoscaling"] = True
        spec["autoscalerOptions"] = {
            "version": "v2",
            "upscalingMode": "Default",
            "idleTimeoutSeconds": template.autoscaling.idle_timeout_s,
            **(tls.autoscaler_options() if template.tls.enabled else {}),
        }
    spec["headGroupSpec"] = {
        "rayStartParams": ray_start_params(template.head),
        "template": head_pod(template, own_token=own_token),
    }
    spec["workerGroupSpecs"] = [
        _group(template, group, own_token=own_token) for group in template.worker_groups
    ]
    return spec


def _without_double_resources(spec: Raw) -> Raw:
    """Remove double settings: KubeRay rejects `resources` next to the same start parameters."""
    for group in (spec.get("headGroupSpec"), *(spec.get("workerGroupSpecs") or ())):
        if isinstance(group, dict) and group.get("resources"):
            params = group.get("rayStartParams") or {}
            group["rayStartParams"] = {k: v for k, v in params.items() if k not in _RESOURCES}
    return spec


def _group(template: KubeRayTemplate, group: WorkerGroup, *, own_token: bool) -> Raw:
    spec: Raw = {
        "groupName": group.name,
        "replicas": group.replicas,
        "minReplicas": group.min_replicas,
        "maxReplicas": group.highest,
        "numOfHosts": group.num_hosts,
    }
    if group.idle_timeout_s is not None:
        spec["idleTimeoutSeconds"] = group.idle_timeout_s
    spec["rayStartParams"] = ray_start_params(group)
    spec["template"] = worker_pod(template, group, own_token=own_token)
    return spec


# --- The NetworkPolicy of a cluster: who may connect to its pods ---


METRICS_PORT: Final = 8080
"""KubeRay's `metrics-export-port` of all Ray pods."""
METRICS_PORT_NAME: Final = "metrics"


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


# --- What Prometheus and Grafana find by themselves ---


def pod_monitor(template: KubeRayTemplate, *, namespace: str) -> Raw:
    """Let the Prometheus operator scrape the metrics port of the cluster's pods."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {
            "name": names.pod_monitor(template.name),
            "namespace": namespace,
            "labels": {**template.metrics.labels, **_own_labels(template)},
        },
        "spec": {
            "selector": {"matchLabels": {names.RAY_CLUSTER_LABEL: template.name}},
            "podMetricsEndpoints": [{"port": METRICS_PORT_NAME}],
        },
    }


def dashboard(template: KubeRayTemplate, *, namespace: str) -> Raw:
    """Hand the dashboard of runs to Grafana's sidecar."""
    return dashboard_manifest(
        names.dashboard_config_map(template.name),
        labels={**template.metrics.labels, **_own_labels(template)},
        namespace=namespace,
    )
