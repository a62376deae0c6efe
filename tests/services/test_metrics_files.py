"""Files for Prometheus and Grafana."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from llmops_kernel.config.models.section import RUNS_DASHBOARD, MetricsPages
from llmops_kernel.errors import ConfigError
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.clusters import grafana_dashboard, scrape_configs
from llmops_kernel.store import paths

BOTH = Backend(providers=lambda: [LocalProvider(), KubeRayProvider()])


def test_one_entry_for_each_provider(home: None) -> None:
    local, kuberay = yaml.safe_load(scrape_configs(backend=BOTH))["scrape_configs"]
    assert local["file_sd_configs"][0]["files"] == [f"{paths.home()}/prometheus/*.json"]
    assert kuberay["kubernetes_sd_configs"][0]["selectors"][0]["label"] == "ray.io/cluster"
    only = yaml.safe_load(scrape_configs("kuberay", backend=BOTH))["scrape_configs"]
    assert only == [kuberay]


def test_an_unknown_provider_is_named(home: None) -> None:
    with pytest.raises(ConfigError, match="slurm") as refused:
        scrape_configs("slurm", backend=BOTH)
    assert "local, kuberay" in refused.value.remedy


def test_the_dashboard_comes_as_a_file_or_in_a_config_map() -> None:
    dashboard = json.loads(grafana_dashboard())
    manifest = yaml.safe_load(grafana_dashboard(config_map="runs", namespace="monitoring"))
    assert manifest["metadata"]["namespace"] == "monitoring"
    assert manifest["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert json.loads(manifest["data"]["llmops-runs.json"]) == dashboard


@pytest.mark.parametrize(
    ("pages", "url"),
    [
        ({}, None),
        ({"prometheus": "http://p:9090"}, None),
        ({"grafana": "http://g:3000/"}, "http://g:3000/d/llmops-runs?var-cluster=lab"),
        (
            {"grafana": "http://g:3000", "grafana_in_browser": "https://ops.example.com/grafana"},
            "https://ops.example.com/grafana/d/llmops-runs?var-cluster=lab",
        ),
    ],
)
def test_the_runs_of_a_cluster_have_an_address_in_grafana(
    pages: dict[str, Any], url: str | None
) -> None:
    environment = MetricsPages.model_validate(pages).environment()
    assert MetricsPages.runs_url(environment, "lab") == url
    assert json.loads(grafana_dashboard())["uid"] == RUNS_DASHBOARD


@pytest.mark.parametrize("address", ["grafana:3000", "http://me:secret@grafana", "http://g?x=1"])
def test_an_address_has_a_scheme_and_no_login(address: str) -> None:
    with pytest.raises(ValidationError):
        MetricsPages(grafana=address)
    assert MetricsPages.runs_url({"RAY_GRAFANA_HOST": "DISABLED"}, "lab") is None
    assert MetricsPages.runs_url({"RAY_GRAFANA_HOST": "http://me:secret@grafana"}, "lab") is None


def test_ray_reads_these_variables_and_shows_that_dashboard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ray.dashboard.modules.metrics import grafana_dashboard_factory, metrics_head

    pages = MetricsPages(
        grafana="http://g", grafana_in_browser="http://b", prometheus="http://p", runs_in_ray=True
    )
    assert pages.environment() == {
        metrics_head.GRAFANA_HOST_ENV_VAR: "http://g",
        metrics_head.GRAFANA_IFRAME_HOST_ENV_VAR: "http://b",
        metrics_head.PROMETHEUS_HOST_ENV_VAR: "http://p",
        "RAY_GRAFANA_DATA_DASHBOARD_UID": RUNS_DASHBOARD,
    }
    for name, value in pages.environment().items():
        monkeypatch.setenv(name, value)
    _, uid = grafana_dashboard_factory.generate_data_grafana_dashboard()
    assert uid == RUNS_DASHBOARD
