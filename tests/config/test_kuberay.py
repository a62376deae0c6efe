"""Templates of KubeRay clusters: rules between fields, each with what would work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.models.kuberay_fields import Access
from llmops_kernel.config.models.quantity import amount, num_bytes
from llmops_kernel.config.reading.templates import load_cluster_template
from llmops_kernel.errors import ConfigError
from llmops_kernel.providers.kuberay.resource import names, status
from llmops_kernel.version import SUPPORTED_RAY

GROUP: dict[str, Any] = {"name": "w", "cpus": 2, "memory": "4Gi"}


def reported(tmp_path: Path, **data: Any) -> list[str]:
    """Every mistake of a template, as a user reads it, without the file."""
    path = tmp_path / "lab.yaml"
    whole = {"provider": "kuberay", "image": "i", "worker_groups": [GROUP]} | data
    path.write_text(yaml.safe_dump(whole, sort_keys=False))
    try:
        load_cluster_template(path)
    except ConfigError as error:
        return [str(problem).partition(": ")[2] for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (
            {"worker_groups": [GROUP, GROUP]},
            "worker_groups.1.name: two worker groups have the name w; rename one of them",
        ),
        (
            {"head": {"price": {"kwh": 0.3}}},
            "head.price.kwh: is not that of the other pods: the head and all worker groups need"
            " the same; give all of them one price of a kWh",
        ),
        (
            {"head": {"price": 0.5}},
            "worker_groups.0.price.node_hour: is missing: the head and all worker groups need a"
            " price, or none of them; add the price, or remove the others",
        ),
        (
            {
                "head": {"price": 0.5},
                "worker_groups": [GROUP | {"price": {"node_hour": 4, "currency": "EUR"}}],
            },
            "worker_groups.0.price.currency: is EUR, another price of this template is USD; give"
            " all prices in one currency",
        ),
        (
            {"ray_version": "2.49.0"},
            "ray_version: Ray 2.49.0 is not supported: this release of llmops-kernel needs Ray"
            f" {SUPPORTED_RAY} on the cluster; set ray_version: {SUPPORTED_RAY} and an image",
        ),
        (
            {"worker_groups": [GROUP | {"name": "head"}], "queue": "q"},
            "worker_groups.0.name: Kueue uses this name for the head's pod; rename the group",
        ),
        (
            {"queue": "q", "worker_groups": [GROUP | {"name": f"g{i}"} for i in range(18)]},
            "worker_groups: 18 worker groups in a queue: Kueue accepts 17 besides the head",
        ),
        (
            {"storage": {"runs": "/mnt/x"}},
            "storage.runs: /mnt/x is not on a volume of storage.volumes that outlives its pod",
        ),
        (
            {"storage": {"runs": "/s/x", "volumes": [{"mount": "/s", "local_ssd": "1T"}]}},
            "storage.runs: /s/x is not on a volume of storage.volumes that outlives its pod",
        ),
        (
            {
                "storage": {
                    "runs": "/mnt/x",
                    "volumes": [{"mount": "/mnt", "claim": "c", "read_only": True}],
                }
            },
            "storage.runs: /mnt/x is mounted read-only; remove read_only",
        ),
        (
            {"storage": {"runs": "s3://key:secret@bucket/llmops"}},
            "storage.runs: the URL has credentials in it, and secrets must be given by reference",
        ),
        ({"env": {"RAY_AUTH_MODE": "disabled"}}, "env.RAY_AUTH_MODE: cannot be set here; token"),
        (
            {"head": {"env": {"RAY_START_HOOK": "a.b"}}},
            "head.env.RAY_START_HOOK: cannot be set here; it starts the warm workers",
        ),
        ({"access": "url"}, "access.url: is required when access.way is url"),
        (
            {"access": {"way": "url", "url": "http://ray.example"}},
            "access.url: the cluster's token would be sent unencrypted to http://ray.example; use"
            " https://; or accept that with access.allow_http: true",
        ),
        ({"managed_by": "me"}, "managed_by: KubeRay rejects 'me'; use ray.io/kuberay-operator or"),
        (
            {"managed_by": "kueue.x-k8s.io/multikueue"},
            "managed_by: MultiKueue accepts only clusters with a queue; set queue",
        ),
        (
            {"worker_groups": [GROUP | {"volumes": [{"mount": "/dev/shm/", "memory": "1Gi"}]}]},
            "worker_groups.0.volumes.0.mount: /dev/shm already has a volume; set shm",
        ),
        (
            {
                "storage": {"volumes": [{"mount": "/a", "claim": "c"}]},
                "head": {"volumes": [{"mount": "/a", "local_ssd": "1Gi"}]},
            },
            "head.volumes.0.mount: two volumes are mounted at /a",
        ),
        (
            {"secrets": [{"secret": "s", "mount": "/opt/llmops"}]},
            "secrets.0.mount: /opt/llmops already has a volume; choose another folder",
        ),
        ({"secrets": [{"secret": "s", "key": "k"}]}, "secrets.0: `key` needs `env`"),
        ({"secrets": [{"secret": "s", "env": "A"}]}, "secrets.0: `env` needs `key`"),
        (
            {"storage": {"volumes": [{"mount": "/a", "claim": "c", "memory": "1Gi"}]}},
            "storage.volumes.0: give exactly one of claim, local_ssd, host_path and memory",
        ),
        (
            {"storage": {"volumes": [{"mount": "a", "claim": "c"}]}},
            "storage.volumes.0.mount: must be an absolute path such as /mnt/team",
        ),
        (
            {"worker_groups": [{"name": "w", "cpus": 2}]},
            "worker_groups.0: set host_type, or cpus and memory",
        ),
        (
            {"worker_groups": [{"name": "w", "host_type": "onprem-4xa100"}]},
            "worker_groups.0: the CPUs of onprem-4xa100 are not known: set cpus",
        ),
        (
            {"worker_groups": [GROUP | {"replicas": 5, "max_replicas": 2}]},
            "worker_groups.0: min_replicas <= replicas <= max_replicas does not hold: 0, 5, 2",
        ),
        (
            {"worker_groups": [GROUP | {"min_replicas": 2}]},
            "worker_groups.0: min_replicas <= replicas <= max_replicas does not hold: 2, 1, 1",
        ),
        ({"worker_groups": {"w": GROUP}}, "worker_groups: must be a list of sections"),
        ({"worker_groups": ["w"]}, "worker_groups.0: must be a section of `key: value` lines"),
        (
            {"worker_groups": [GROUP | {"gpu": 8}]},
            "worker_groups.0.gpu: unknown key (value 8); did you mean gpus?",
        ),
    ],
)
def test_a_broken_rule_is_reported_with_what_would_work(
    data: dict[str, Any], says: str, tmp_path: Path
):
    (line,) = reported(tmp_path, **data)
    assert says in line


def test_a_right_one_is_taken(tmp_path: Path):
    assert reported(tmp_path) == []
    assert reported(tmp_path, worker_groups=[]) == []
    assert reported(tmp_path, storage={"runs": "s3://b/x"}) == []


def test_all_mistakes_of_all_groups_at_once(tmp_path: Path):
    groups = [
        GROUP | {"replicas": "many"},
        GROUP | {"host_tipe": "x"},
        {"name": "C"},
        {"name": "d"},
    ]
    lines = reported(tmp_path, worker_groups=groups)
    places = [line.partition("worker_groups.")[2].partition(":")[0] for line in lines]
    assert places == ["0.replicas", "1.host_tipe", "2.name", "3"]


def test_a_raw_secret_in_kubernetes_own_yaml_is_found(tmp_path: Path):
    entry = {"name": "WANDB_API_KEY", "value": "0123456789"}
    pod = {"initContainers": [{"name": "i", "image": "x", "env": [entry]}]}
    (line,) = reported(tmp_path, head={"pod": pod})
    assert "head.pod: WANDB_API_KEY looks like a secret" in line
    assert "0123456789" not in line
    (line,) = reported(tmp_path, raycluster={"autoscalerOptions": {"env": [entry]}})
    assert "raycluster: WANDB_API_KEY looks like a secret" in line
    reference = {"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}
    assert reported(tmp_path, raycluster={"autoscalerOptions": {"env": [reference]}}) == []


def test_numbers_are_quantities_as_they_were_written(tmp_path: Path):
    path = tmp_path / "lab.yaml"
    path.write_text(
        "provider: kuberay\nimage: i\nhead: {cpus: 0.5, memory: 1e9}\n"
        "worker_groups: [{name: w, cpus: 2, memory: 1.5Gi}]\n"
    )
    found = load_cluster_template(path)
    assert isinstance(found, KubeRayTemplate)
    assert (found.head.cpus, found.head.memory) == ("0.5", "1e9")
    assert (found.worker_groups[0].cpus, found.worker_groups[0].memory) == ("2", "1.5Gi")
    assert num_bytes(found.head.memory) == 10**9
    assert amount(found.head.cpus) * 2 == 1


def test_what_hosts_leave_to_pods():
    """Less than GKE's own reservation leaves: 0.6 CPUs and 44 GiB are kept back there."""
    data = {"image": "i", "worker_groups": [{"name": "w", "host_type": "a3-highgpu-8g"}]}
    (group,) = KubeRayTemplate.model_validate(data).worker_groups
    assert int(group.pod_cpus) < 208 - 0.6 - 4
    assert num_bytes(group.pod_memory) < (1872 - 44 - 1872 // 100 - 16) * 2**30
    assert num_bytes(group.pod_memory) > 0.9 * 1872 * 2**30
    assert group.pod_gpus == 8


def test_a_mistake_in_a_group_hides_no_other_mistake(tmp_path: Path) -> None:
    mistakes = reported(tmp_path, worker_groups=[GROUP | {"name": "W"}], env={"HF_TOKEN": "hf_x"})
    assert {line.partition(":")[0] for line in mistakes} == {"env.HF_TOKEN", "worker_groups.0.name"}


def test_a_port_forward_of_its_own_is_explained_and_a_record_of_one_is_read(tmp_path: Path) -> None:
    (problem,) = reported(tmp_path, access="port-forward")
    assert problem.startswith("access.way")
    assert "kubectl port-forward" in problem
    whole = {"provider": "kuberay", "image": "i", "worker_groups": [GROUP]}
    written = KubeRayTemplate.model_validate(whole).model_dump(mode="json")
    written["access"]["way"] = "port-forward"
    notes = {names.TEMPLATE: json.dumps(written), names.ACCESS: json.dumps(written["access"])}
    raycluster = {"metadata": {"annotations": notes}}
    template = status.template_of(raycluster)
    assert template is not None
    assert template.access == status.access_of(raycluster) == Access()
