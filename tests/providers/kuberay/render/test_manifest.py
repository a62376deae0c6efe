"""Every shipped template rendered: by the CRD's own schema, strictly, and always the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.models.section import NodePrice
from llmops_kernel.config.reading.templates import (
    FOLDER,
    NOT_TEMPLATES,
    load_cluster_template,
    shipped,
)
from llmops_kernel.errors import ConfigError
from llmops_kernel.providers.kuberay.render.manifest import Manifest, render
from llmops_kernel.providers.kuberay.resource import names
from llmops_kernel.providers.kuberay.resource.output_storage import head_environment
from tests.providers.kuberay.render.crd_schema import faults

ROOT = Path(__file__).parents[4]
GOLDEN = Path(__file__).with_name("golden")
KUBERAY = ("gcp-h100", "kind-cpu", "mixed", "onprem-a100", "spot")
GROUP: dict[str, Any] = {"name": "w", "cpus": 2, "memory": "4Gi"}


def made(*, lacks: tuple[str, ...] = (), **data: Any) -> Manifest:
    data = {"name": "lab", "image": "i", "worker_groups": [GROUP]} | data
    return render(KubeRayTemplate.model_validate(data), namespace="ml", missing_fields=lacks)


def worker(manifest: Manifest) -> dict[str, Any]:
    found: dict[str, Any] = manifest.raycluster["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    return found


def head(manifest: Manifest) -> dict[str, Any]:
    found: dict[str, Any] = manifest.raycluster["spec"]["headGroupSpec"]["template"]["spec"]
    return found


def env(pod: dict[str, Any]) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in pod["containers"][0]["env"]}


def test_the_folder_has_these_templates_and_nothing_else_that_looks_like_one():
    files = {path.stem for path in (ROOT / FOLDER).glob("*.y*ml")}
    assert files == {*KUBERAY, "local", "rbac"}
    assert set(shipped()) == set(KUBERAY)
    assert NOT_TEMPLATES == ("rbac",)
    assert isinstance(load_cluster_template(ROOT / FOLDER / "local.yaml"), ClusterTemplate)


@pytest.mark.parametrize("name", KUBERAY)
def test_a_shipped_template_is_commented_and_named_like_its_file(name: str):
    text = (ROOT / FOLDER / f"{name}.yaml").read_text()
    assert load_cluster_template(ROOT / FOLDER / f"{name}.yaml").name == name
    top = [line.split(":")[0] for line in text.splitlines() if re.match(r"[a-z_]+:", line)]
    comments = [line for line in text.splitlines() if line.strip().startswith("#")]
    assert len(comments) >= len(top)
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", KUBERAY)
@pytest.mark.parametrize("lacks", [(), ("authOptions",)])
def test_a_shipped_template_is_what_the_crd_wants(name: str, lacks: tuple[str, ...]):
    template = load_cluster_template(ROOT / FOLDER / f"{name}.yaml")
    assert isinstance(template, KubeRayTemplate)
    assert faults(render(template, namespace="ml", missing_fields=lacks).raycluster) == []


def test_the_strict_check_finds_what_is_wrong():
    raycluster = made(raycluster={"idleSuspend": True, "suspend": "yes"}).raycluster
    raycluster["spec"]["headGroupSpec"]["template"]["spec"]["contaners"] = []
    reported = "\n".join(faults(raycluster))
    assert "unknown field .spec.idleSuspend" in reported
    assert "unknown field .spec.headGroupSpec.template.spec.contaners" in reported
    assert "'yes' is not of type 'boolean'" in reported


@pytest.mark.parametrize("name", KUBERAY)
def test_the_manifest_is_the_one_that_was_read_by_people(name: str):
    """To write them anew: `llmops cluster render NAME --namespace ml --raycluster-only`."""
    template = load_cluster_template(ROOT / FOLDER / f"{name}.yaml")
    assert isinstance(template, KubeRayTemplate)
    text = render(template, namespace="ml").to_yaml(with_companions=False)
    assert text == (GOLDEN / f"{name}.yaml").read_text()
    assert text == render(template, namespace="ml").to_yaml(with_companions=False)
    assert yaml.safe_load(text) == render(template, namespace="ml").raycluster


def test_the_record_holds_the_whole_template():
    template = KubeRayTemplate.model_validate(
        {"name": "lab", "image": "i", "worker_groups": [GROUP], "idle": {"suspend_after_s": 60}}
    )
    notes = render(template, namespace="ml").raycluster["metadata"]["annotations"]
    assert KubeRayTemplate.model_validate_json(notes[names.TEMPLATE]) == template
    assert json.loads(notes[names.IDLE])["suspend_after_s"] == 60


def test_ray_is_the_first_container_whatever_is_merged_in():
    sidecar = {"name": "sidecar", "image": "s"}
    own = {"name": "ray-worker", "securityContext": {"privileged": False}}
    pod = worker(made(worker_groups=[GROUP | {"pod": {"containers": [sidecar, own]}}]))
    assert [c["name"] for c in pod["containers"]] == ["ray-worker", "sidecar"]
    assert pod["containers"][0]["securityContext"] == {"privileged": False}
    assert pod["containers"][0]["image"] == "i"


def test_raw_fields_win_and_null_takes_one_out():
    raw = {
        "rayVersion": "2.61.0",
        "authOptions": None,
        "workerGroupSpecs": [{"groupName": "w", "priority": 3}],
        "headGroupSpec": {"serviceType": "NodePort"},
    }
    spec = made(raycluster=raw).raycluster["spec"]
    assert spec["rayVersion"] == "2.61.0"
    assert "authOptions" not in spec
    assert spec["workerGroupSpecs"][0]["priority"] == 3
    assert spec["workerGroupSpecs"][0]["template"]["spec"]["containers"]
    assert spec["headGroupSpec"]["serviceType"] == "NodePort"


def test_resources_of_a_group_take_the_place_of_start_parameters():
    """The operator refuses both together."""
    raw = {"headGroupSpec": {"resources": {"CPU": "0"}}}
    spec = made(raycluster=raw).raycluster["spec"]["headGroupSpec"]
    assert spec["rayStartParams"] == {"dashboard-host": "0.0.0.0"}
    assert spec["resources"] == {"CPU": "0"}


def test_each_pod_knows_its_own_price():
    group = {"name": "w", "cpus": 2, "memory": "4Gi", "price": 12.5}
    manifest = made(head={"price": 0.5}, worker_groups=[group])
    prices = [NodePrice.read(env(pod)) for pod in (head(manifest), worker(manifest))]
    assert prices == [NodePrice(node_hour=0.5), NodePrice(node_hour=12.5)]
    alone = NodePrice.read(env(head(made(head={"price": 0.5}, worker_groups=[]))))
    assert alone == NodePrice(node_hour=0.5, only_node=True)
    assert NodePrice.read(env(head(made()))) is None


def test_only_the_head_knows_where_grafana_is():
    manifest = made(metrics={"grafana": "http://g:3000", "runs_in_ray": True})
    assert env(head(manifest))["RAY_GRAFANA_HOST"] == "http://g:3000"
    assert "RAY_GRAFANA_HOST" not in env(worker(manifest))
    own = made(metrics={"grafana": "http://g:3000"}, env={"RAY_GRAFANA_HOST": "http://mine"})
    assert env(head(own))["RAY_GRAFANA_HOST"] == "http://mine"
    assert head_environment(own.raycluster)["RAY_GRAFANA_HOST"] == "http://mine"


def test_gpus_are_texts_and_tainted_nodes_are_tolerated():
    pod = worker(made(worker_groups=[{"name": "g", "host_type": "a3-highgpu-8g"}]))
    limits = pod["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "191", "memory": "1722Gi", "nvidia.com/gpu": "8"}
    assert pod["containers"][0]["resources"]["requests"] == limits
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in (
        pod["tolerations"]
    )
    assert "tolerations" not in worker(made())


def test_training_stays_off_the_head_and_logical_numbers_reach_ray():
    manifest = made(worker_groups=[GROUP | {"num_gpus": 8, "num_cpus": 4}])
    spec = manifest.raycluster["spec"]
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert spec["workerGroupSpecs"][0]["rayStartParams"] == {"num-cpus": "4", "num-gpus": "8"}


def test_autoscaler_two_wants_pods_that_are_not_restarted():
    manifest = made(autoscaling=True)
    assert manifest.raycluster["spec"]["autoscalerOptions"]["version"] == "v2"
    assert head(manifest)["restartPolicy"] == worker(manifest)["restartPolicy"] == "Never"
    assert int(env(head(manifest))["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"]) > 600
    assert "restartPolicy" not in worker(made())


def test_secrets_are_references_as_variables_and_as_files():
    secrets = [
        {"secret": "hf", "key": "token", "env": "HF_TOKEN"},
        {"secret": "all", "optional": True},
        {"secret": "keys", "mount": "/etc/keys"},
        {"secret": "one", "key": "a.pem", "mount": "/etc/one"},
    ]
    for pod in (head(made(secrets=secrets)), worker(made(secrets=secrets))):
        assert env(pod)["HF_TOKEN"] == {"secretKeyRef": {"name": "hf", "key": "token"}}
        container = pod["containers"][0]
        assert container["envFrom"] == [{"secretRef": {"name": "all", "optional": True}}]
        volumes = {v["name"]: v for v in pod["volumes"]}
        mounts = {m["mountPath"]: m for m in container["volumeMounts"]}
        assert volumes[mounts["/etc/keys"]["name"]]["secret"] == {"secretName": "keys"}
        assert volumes[mounts["/etc/one"]["name"]]["secret"]["items"] == [
            {"key": "a.pem", "path": "a.pem"}
        ]
        assert mounts["/etc/one"]["readOnly"]


def test_volumes_of_all_and_of_a_group():
    storage = {
        "runs": "/mnt/team/runs",
        "volumes": [
            {"mount": "/mnt/team", "claim": "share"},
            {"mount": "/mnt/x", "claim": "share"},
        ],
    }
    own = [
        {"mount": "/scratch", "local_ssd": "1T"},
        {"mount": "/disk", "host_path": "/data", "read_only": True},
        {"mount": "/ram", "memory": "1Gi"},
    ]
    manifest = made(storage=storage, worker_groups=[GROUP | {"volumes": own, "shm": "2Gi"}])
    pod = worker(manifest)
    volumes = {v["name"]: {k: s for k, s in v.items() if k != "name"} for v in pod["volumes"]}
    mounts = {m["mountPath"]: m for m in pod["containers"][0]["volumeMounts"]}
    assert volumes[mounts["/mnt/team"]["name"]] == {"persistentVolumeClaim": {"claimName": "share"}}
    assert mounts["/mnt/x"]["name"] == mounts["/mnt/team"]["name"]
    assert volumes[mounts["/scratch"]["name"]] == {"emptyDir": {"sizeLimit": "1T"}}
    assert volumes[mounts["/disk"]["name"]] == {"hostPath": {"path": "/data"}}
    assert mounts["/disk"]["readOnly"]
    ram = {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    assert volumes[mounts["/ram"]["name"]] == ram
    assert volumes["shm"]["emptyDir"]["sizeLimit"] == "2Gi"
    assert env(pod)["LLMOPS_RUN_STORAGE"] == env(head(manifest))["LLMOPS_RUN_STORAGE"]
    assert "LLMOPS_COPY_OUTPUTS" not in env(pod), "the default changes no pod"
    limited = made(storage={"copy_outputs": "1Gi"})
    assert env(worker(limited))["LLMOPS_COPY_OUTPUTS"] == str(2**30)
    assert "/scratch" not in {
        m["mountPath"] for m in head(manifest)["containers"][0]["volumeMounts"]
    }


def test_shared_memory_is_ray_s_share_of_the_memory():
    pod = worker(made(worker_groups=[GROUP | {"memory": "10Gi"}]))
    sizes = {v["name"]: v["emptyDir"]["sizeLimit"] for v in pod["volumes"] if v["name"] == "shm"}
    assert sizes == {"shm": "3072Mi"}


def test_spot_nodes_of_any_cloud_beside_the_users_own_terms():
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    group = GROUP | {"spot": True, "affinity": {"nodeAffinity": required}, "one_per_node": True}
    affinity = worker(made(worker_groups=[group]))["affinity"]
    wanted = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    keys = [[e["key"] for e in t["matchExpressions"]] for t in wanted["nodeSelectorTerms"]]
    assert ["zone", "cloud.google.com/gke-spot"] in keys
    assert ["zone", "karpenter.sh/capacity-type"] in keys
    assert all(len(pair) == 2 for pair in keys)
    (anti,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert anti["labelSelector"]["matchLabels"] == {"ray.io/cluster": "lab", "ray.io/group": "w"}
    assert terms == [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]


def test_topology_spread_counts_the_groups_own_pods():
    raw = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    own = {"labelSelector": {"matchLabels": {"a": "b"}}}
    group = GROUP | {"topology_spread": [raw, raw | own]}
    first, second = worker(made(worker_groups=[group]))["topologySpreadConstraints"]
    assert first["labelSelector"]["matchLabels"]["ray.io/group"] == "w"
    assert second["labelSelector"] == own["labelSelector"]


def test_a_queue_is_reported_to_kueue_alone():
    manifest = made(queue="team-a", queue_priority="high")
    meta = manifest.raycluster["metadata"]
    assert meta["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert meta["labels"]["kueue.x-k8s.io/priority-class"] == "high"
    assert meta["annotations"]["kueue.x-k8s.io/elastic-job"] == "true"
    assert "suspend" not in manifest.raycluster["spec"]
    assert "metadata" not in manifest.raycluster["spec"]["headGroupSpec"]["template"]
    assert "kueue.x-k8s.io/elastic-job" not in made().raycluster["metadata"]["annotations"]


def test_without_token_fields_the_variables_are_ours():
    manifest = made(lacks=("authOptions",))
    assert manifest.needs_token
    assert "authOptions" not in manifest.raycluster["spec"]
    for pod in (head(manifest), worker(manifest)):
        assert env(pod)["RAY_AUTH_MODE"] == "token"
        assert env(pod)["RAY_AUTH_TOKEN"]["secretKeyRef"] == {"name": "lab", "key": "auth_token"}
    assert not made().needs_token
    assert "RAY_AUTH_MODE" not in env(head(made()))


def test_commands_after_start_are_words_not_shell():
    lifecycle = worker(made(after_start=[["echo", "a b; rm x"], ["true"]]))["containers"][0]
    command = lifecycle["lifecycle"]["postStart"]["exec"]["command"]
    assert command == ["/bin/sh", "-ec", "echo 'a b; rm x'\ntrue"]


def test_cold_clusters_have_nothing_of_ours():
    manifest = made(warm={"enabled": False})
    assert manifest.companions == ()
    assert "RAY_START_HOOK" not in env(worker(manifest))
    assert "/opt/llmops" not in str(manifest.raycluster["spec"])


@pytest.mark.parametrize(
    ("env_vars", "is_refused"),
    [
        ({"HF_TOKEN": "abc"}, True),
        ({"AWS_SECRET_ACCESS_KEY": "abc"}, True),
        ({"DB_PASSWORD": "x"}, True),
        ({"ANYTHING": "hf_" + "a" * 30}, True),
        ({"REDIS": "redis://user:pass@host"}, True),
        ({"GOOGLE_APPLICATION_CREDENTIALS": "/var/secrets/key.json"}, False),
        ({"TOKENIZERS_PARALLELISM": "false"}, False),
        ({"HF_TOKEN": ""}, False),
        ({"MONKEY": "x", "KEYBOARD": "y"}, False),
    ],
)
def test_literal_secrets_are_refused_and_never_repeated(
    env_vars: dict[str, str], is_refused: bool, tmp_path: Path
):
    data = {"provider": "kuberay", "image": "i", "worker_groups": [GROUP | {"env": env_vars}]}
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(data))
    if not is_refused:
        assert load_cluster_template(path)
        return
    with pytest.raises(ConfigError) as caught:
        load_cluster_template(path)
    (name, value), *_ = env_vars.items()
    assert f"worker_groups.0.env.{name}" in caught.value.message
    assert f"secrets: [{{secret: NAME, key: {name.lower().replace('_', '-')}" in (
        caught.value.message
    )
    assert "secretKeyRef" in caught.value.message
    assert len(value) < 4 or value not in caught.value.message


@pytest.mark.parametrize("name", ["4xa100", "Lab", "a" * 54, "-a", "a_b"])
def test_names_that_kuberay_refuses(name: str, tmp_path: Path):
    path = tmp_path / "c.yaml"
    path.write_text(f"name: {name!r}\nprovider: kuberay\nimage: i\n")
    with pytest.raises(ConfigError, match=r"at most 53 lower-case letters.*a letter first"):
        load_cluster_template(path)


def test_the_longest_name_is_taken(tmp_path: Path):
    path = tmp_path / "c.yaml"
    path.write_text(f"name: {'a' * 53}\nprovider: kuberay\nimage: i\n")
    assert len(load_cluster_template(path).name) == 53
