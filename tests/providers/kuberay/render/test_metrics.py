"""What Prometheus and Grafana on Kubernetes find by themselves."""

from __future__ import annotations

import json

import pytest
import yaml

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.metrics.run_gauges import dashboard_text
from llmops_kernel.providers.kuberay.api.paths import object_path
from llmops_kernel.providers.kuberay.needs import needs_of
from llmops_kernel.providers.kuberay.render.manifest import render

GROUP = {"name": "w", "cpus": 2, "memory": "4Gi"}


def template(**metrics: object) -> KubeRayTemplate:
    values = {"name": "lab", "image": "i", "worker_groups": [GROUP], "metrics": metrics}
    return KubeRayTemplate.model_validate(values)


def test_a_pod_monitor_selects_the_metrics_port_of_the_clusters_pods() -> None:
    manifest = render(template(pod_monitor=True, labels={"release": "prometheus"}), namespace="ml")
    monitor = manifest.companions[-1]
    path = "/apis/monitoring.coreos.com/v1/namespaces/ml/podmonitors/lab-metrics"
    assert object_path(monitor) == path
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"] == {"matchLabels": {"ray.io/cluster": "lab"}}
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    # KubeRay's operator adds the port of this name to workers, which have none of their own.
    head = manifest.raycluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert endpoint["port"] in [port["name"] for port in head["ports"]]


def test_the_dashboard_is_a_config_map_that_grafanas_sidecar_loads() -> None:
    manifest = render(template(dashboard=True), namespace="ml")
    config_map = yaml.safe_load(manifest.to_yaml().split("---\n")[-1])
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(config_map["data"]["llmops-runs.json"]) == json.loads(dashboard_text())


@pytest.mark.parametrize(
    ("metrics", "resource"),
    [({}, ""), ({"pod_monitor": True}, "podmonitors")],
)
def test_the_rights_for_it_are_asked_for(metrics: dict[str, object], resource: str) -> None:
    needed = {need.resource for need in needs_of(template(**metrics))}
    assert "podmonitors" not in needed if not resource else resource in needed
