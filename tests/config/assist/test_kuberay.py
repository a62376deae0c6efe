"""Editors and forms follow the `provider` that a cluster template names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmops_kernel.config.assist import diagnose, form_schema, hover, render
from llmops_kernel.config.assist.diagnose import examine
from llmops_kernel.config.assist.file_kinds import CLUSTER, TRAIN
from llmops_kernel.config.assist.template import cluster_template
from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.reading.templates import load_cluster_template, shipped
from llmops_kernel.kinds.reading import file_kind_of
from tests.config.assist.test_complete import at_bar, labels

KUBERAY = "provider: kuberay\nimage: i\n"


def test_fields_are_proposed_for_the_provider_that_is_written() -> None:
    local, kuberay = at_bar("|", CLUSTER), at_bar(KUBERAY + "|", CLUSTER)
    assert "num_cpus" in labels(local)
    assert "worker_groups" not in labels(local)
    assert "worker_groups" in labels(kuberay)
    assert "dashboard_port" not in labels(kuberay)
    assert "image" not in labels(kuberay)


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("worker_groups:\n  - |", "host_type"),
        ("worker_groups:\n  - name: a\n    |", "max_replicas"),
        ("worker_groups:\n  - name: a\n    volumes:\n      - |", "local_ssd"),
        ("worker_groups:\n  - {name: a, |}", "spot"),
        ("secrets:\n  - secret: hf\n    |", "env"),
        ("storage:\n  |", "runs"),
        ("access:\n  way: |", "service-proxy"),
        ("idle:\n  at_end: |", "delete"),
    ],
)
def test_inside_lists_and_sections(text: str, there: str) -> None:
    assert there in labels(at_bar(KUBERAY + text, CLUSTER))


def test_what_a_field_of_a_list_means() -> None:
    text = KUBERAY + "worker_groups:\n  - name: a\n    cpus: 4\n"
    found = hover(CLUSTER, text, line=5, column=5)
    assert found is not None
    assert "CPUs of a pod" in found.text
    assert "Kubernetes quantity" in found.text
    assert hover(CLUSTER, "num_cpus: 2\n", line=1, column=2) is not None


def test_a_mistake_in_a_list_stands_at_its_line() -> None:
    text = KUBERAY + "worker_groups:\n  - name: a\n    cpus: 1\n    memory: 4GB\n  - name: b\n"
    first, second = diagnose(CLUSTER, text)
    assert (first.path, first.line) == ("worker_groups.0.memory", 6)
    assert first.column == len("    memory: ")
    assert first.suggestion == "write for example 4G"
    assert (second.path, second.line) == ("worker_groups.1", 7)
    assert second.message == "set host_type, or cpus and memory"


def test_an_unknown_provider_is_one_mistake() -> None:
    (found,) = diagnose(CLUSTER, "provider: slurm\nnum_cpus: 2\n")
    assert (found.path, found.value) == ("provider", "slurm")
    assert found.message == "must be one of local, kuberay"
    (typo,) = diagnose(CLUSTER, "provider: kubray\n")
    assert typo.suggestion == "did you mean kuberay?"


@pytest.mark.parametrize("name", sorted(shipped()))
def test_shipped_templates_have_no_mistakes_and_say_what_they_are(name: str) -> None:
    text = shipped()[name].read_text()
    examined = examine(CLUSTER, text, path=f"cluster_templates/{name}.yaml")
    assert examined.problems == []
    lines = CLUSTER.effect(examined.config)
    assert lines[0].startswith(f"Cluster {name}: a Ray head on Kubernetes (")
    assert sum(line.startswith("Worker group ") for line in lines) >= 1


def test_what_a_template_works_out_to() -> None:
    lines = CLUSTER.effect(load_cluster_template("gcp-h100"))
    assert (
        "Worker group h100: 2 pods, at most 4, each with 191 CPUs, 1722Gi and 8 GPUs"
        " on a3-highgpu-8g." in lines
    )
    assert "Kueue starts it when queue team-a has enough quota." in lines
    assert "Suspended after 30 min without work." in lines
    assert "Always suspended 3 days after its start, even while runs are active." in lines


def test_a_replica_of_several_hosts_is_several_pods() -> None:
    template = load_cluster_template("gcp-h100")
    (first, *others) = template.worker_groups
    groups = (first.model_copy(update={"num_hosts": 4}), *others)
    lines = CLUSTER.effect(template.model_copy(update={"worker_groups": groups}))
    assert any("h100: 8 pods, at most 16 (4 a replica), each with 191" in line for line in lines)


def test_the_form_of_each_provider() -> None:
    local, kuberay = form_schema(CLUSTER), form_schema(CLUSTER, provider="kuberay")
    assert "num_cpus" in local["properties"]
    group = kuberay["properties"]["worker_groups"]["items"]["properties"]
    assert group["replicas"]["minimum"] == 0
    assert group["cpus"]["expected"].startswith("a Kubernetes quantity")
    assert group["cpus"]["pattern"]
    for schema in (local, kuberay):
        assert schema["properties"]["provider"]["enum"] == ["local", "kuberay"]
        assert "$ref" not in json.dumps(schema)
    assert form_schema(CLUSTER, provider="") == local
    assert "provider" not in form_schema(TRAIN)["properties"]


def test_a_form_writes_lists_of_sections_as_they_are() -> None:
    text = KUBERAY + "worker_groups:\n  - name: a # gpu\n    cpus: 1\n    memory: 1Gi\n"
    values = dict(examine(CLUSTER, text).values or {})
    written = render(CLUSTER, values | {"image": "j", "idle": {"suspend_after_s": 60}})
    again = examine(CLUSTER, written).values
    assert again is not None
    assert again["worker_groups"] == values["worker_groups"]
    assert "idle:\n  suspend_after_s: 60\n" in written


def test_values_are_written_with_their_provider() -> None:
    data: dict[str, Any] = {"provider": "kuberay", "image": "i", "stop_wait_s": 120.0}
    text = render(CLUSTER, data)
    assert text == "name: kuberay\nprovider: kuberay\nimage: i\n"
    assert render(CLUSTER, {"provider": "local", "num_cpus": 2}) == "name: local\nnum_cpus: 2\n"


def test_a_new_template_explains_every_field_of_every_section() -> None:
    text = cluster_template(provider="kuberay", name="lab")
    examined = examine(CLUSTER, text)
    assert examined.problems == []
    assert isinstance(examined.config, KubeRayTemplate)
    assert text.index("  - name: workers") < text.index("    node_selector")
    for about in (
        "Kind of machine",
        "Absolute path",
        "Provider of the cluster",
        "LocalQueue of Kueue",
    ):
        assert (about in text) == (about != "Absolute path")
    assert max(map(len, text.splitlines())) <= 100


def test_rbac_is_no_cluster_template() -> None:
    assert file_kind_of("cluster_templates/rbac.yaml") is None
    assert file_kind_of("a/cluster_templates/rbac.yml") is None
    assert file_kind_of("cluster_templates/gcp-h100.yaml") is CLUSTER
