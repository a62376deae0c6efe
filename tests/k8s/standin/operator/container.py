"""What KubeRay's operator puts into the container of Ray: command, variables, probes, token."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from typing import Any

from llmops_kernel.config.models.quantity import amount
from tests.k8s.standin.operator import rules as rules
from tests.k8s.standin.operator.names import (
    AUTOSCALER,
    KUBERAY,
    clip,
    gcs_port,
    service_account,
    service_fqdn,
    service_name,
)
from tests.k8s.standin.runtime.client import Obj

_CUSTOM = {
    "aws.amazon.com/neuroncore": "neuron_cores",
    "google.com/tpu": "TPU",
    "huawei.com/Ascend910": "NPU",
}


def set_command(cluster: Obj, container: Obj, command: str) -> None:
    annotations = cluster["metadata"].get("annotations") or {}
    if annotations.get("ray.io/overwrite-container-cmd", "").lower() == "true":
        return
    own = "".join(
        f" {word} " for word in [*(container.get("command") or []), *(container.get("args") or [])]
    )
    if "ray start" in own:
        return
    line = f"ulimit -n ${{RAY_START_ULIMIT_OPEN_FILES:-65536}}; {command}"
    container["command"] = ["/bin/bash", "-c", "--"]
    container["args"] = [f"{own} && {line}" if own else line]


def start_command(params: dict[str, str], container: Obj, *, node_type: str) -> str:
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    cpus = limits.get("cpu") or requests.get("cpu")
    if "num-cpus" not in params and cpus and amount(cpus):
        params["num-cpus"] = str(math.ceil(amount(cpus)))
    if "memory" not in params and limits.get("memory"):
        params["memory"] = str(math.ceil(amount(limits["memory"])))
    for name in sorted(limits):
        value = amount(limits[name])
        if name.endswith("gpu") and value and "num-gpus" not in params:
            params["num-gpus"] = str(math.ceil(value))
        if name in _CUSTOM and value and "resources" not in params:
            params["resources"] = "'" + json.dumps({_CUSTOM[name]: int(value)}) + "'"
    head = "--head " if node_type == "head" else ""
    return f"ray start {head}" + "".join(_flag(k, params[k]) for k in sorted(params))


def _flag(name: str, value: str) -> str:
    takes_value = ("log-color", "include-dashboard", "include-log-monitor")
    if value.lower() in ("true", "false") and name not in takes_value:
        return f" --{name} " if value.lower() == "true" else ""
    return f" --{name}={value} "


def set_env(cluster: Obj, container: Obj, command: str, *, node_type: str) -> None:
    address = "127.0.0.1"
    if node_type == "worker":
        address = service_fqdn(cluster)
        add_env(container, "FQ_RAY_IP", address)
        add_env(container, "RAY_IP", service_name(cluster))
    _add_field(container, "RAY_CLUSTER_NAME", "metadata.labels['ray.io/cluster']")
    _add_field(container, "RAY_CLUSTER_NAMESPACE", "metadata.namespace")
    _add_field(container, "RAY_CLOUD_INSTANCE_ID", "metadata.name")
    _add_field(container, "RAY_NODE_TYPE_NAME", "metadata.labels['ray.io/group']")
    add_env(container, "KUBERAY_GEN_RAY_START_CMD", command)
    default_env(container, "RAY_PORT", gcs_port(cluster))
    default_env(container, "RAY_ADDRESS", f"{address}:{gcs_port(cluster)}")
    default_env(container, "RAY_USAGE_STATS_KUBERAY_IN_USE", "1")
    if node_type == "head":
        tags = f"kuberay_version={KUBERAY};kuberay_crd=RayCluster"
        add_env(container, "RAY_USAGE_STATS_EXTRA_TAGS", tags)
    default_env(container, "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1")


def set_probes(cluster: Obj, container: Obj, params: dict[str, str], *, node_type: str) -> None:
    port = int(params["dashboard-agent-listen-port"])
    action: Obj = {"httpGet": {"path": "/api/healthz", "port": port}}
    parts = [int(part) for part in cluster["spec"].get("rayVersion", "0").split(".")[:2]]
    if parts < [2, 53]:
        action = {"exec": {"command": ["bash", "-c", _old_probe(node_type, port)]}}
    timeout_s = 5 if node_type == "head" else 2
    container.setdefault("livenessProbe", action | {
        "initialDelaySeconds": 30, "timeoutSeconds": timeout_s, "periodSeconds": 5,
        "successThreshold": 1, "failureThreshold": 120,
    })  # fmt: skip
    container.setdefault("readinessProbe", action | {
        "initialDelaySeconds": 10, "timeoutSeconds": timeout_s, "periodSeconds": 5,
        "successThreshold": 1, "failureThreshold": 10,
    })  # fmt: skip


def _old_probe(node_type: str, port: int) -> str:
    ask = "wget --tries 1 -T 2 -q -O- http://localhost:{}/{} | grep success"
    agent = ask.format(port, "api/local_raylet_healthz")
    return f"{agent} && {ask.format(8265, 'api/gcs_healthz')}" if node_type == "head" else agent


def add_token(cluster: Obj, container: Obj) -> None:
    default_env(container, "RAY_AUTH_MODE", "token")
    options = cluster["spec"]["authOptions"]
    if options.get("enableK8sTokenAuth"):
        default_env(container, "RAY_ENABLE_K8S_TOKEN_AUTH", "true")
        return
    name = options.get("secretName") or clip(cluster["metadata"]["name"])
    if not any(variable["name"] == "RAY_AUTH_TOKEN" for variable in container.get("env") or []):
        source = {"secretKeyRef": {"name": name, "key": "auth_token"}}
        _add(container, {"name": "RAY_AUTH_TOKEN", "valueFrom": source})


def add_redis(cluster: Obj, container: Obj, params: dict[str, str], annotations: Obj) -> None:
    options = cluster["spec"]["gcsFaultToleranceOptions"]
    space = options.get("externalStorageNamespace") or cluster["metadata"]["uid"]
    annotations["ray.io/external-storage-namespace"] = space
    default_env(container, "RAY_external_storage_namespace", space)
    add_env(container, "RAY_REDIS_ADDRESS", options.get("redisAddress", ""))
    for field, flag, variable in (
        ("redisUsername", "redis-username", "REDIS_USERNAME"),
        ("redisPassword", "redis-password", "REDIS_PASSWORD"),
    ):
        if options.get(field):
            params[flag] = f"${variable}"
            _add(container, {"name": variable, **deepcopy(options[field])})


def add_autoscaler(cluster: Obj, pod: Obj, params: dict[str, str]) -> None:
    """Ray's autoscaler as a container beside the head's."""
    params["no-monitor"] = "true"
    spec = pod["spec"]
    spec["serviceAccountName"] = service_account(cluster)
    sidecar = _autoscaler(spec["containers"][0]["image"])
    if rules.token_auth(cluster["spec"]):
        add_token(cluster, sidecar)
    _override(sidecar, cluster["spec"].get("autoscalerOptions") or {})
    spec["containers"].append(sidecar)
    is_v2 = rules.autoscaler_v2(cluster["spec"])
    add_env(spec["containers"][0], rules.V2_ENV, str(is_v2).lower())
    if is_v2:
        spec["restartPolicy"] = "Never"


def _autoscaler(image: str) -> Obj:
    command = (
        "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME)"
        " --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
    )
    amounts = {"cpu": "500m", "memory": "512Mi"}
    container: Obj = {
        "name": AUTOSCALER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/bash", "-c", "--"],
        "args": [command],
        "resources": {"limits": dict(amounts), "requests": dict(amounts)},
    }
    _add_field(container, "RAY_CLUSTER_NAME", "metadata.labels['ray.io/cluster']")
    _add_field(container, "RAY_CLUSTER_NAMESPACE", "metadata.namespace")
    _add_field(container, "RAY_HEAD_POD_NAME", "metadata.name")
    add_env(container, "KUBERAY_CRD_VER", "v1")
    add_env(container, "KUBERAY_GEN_AUTOSCALER_START_CMD", command)
    return container


def _override(sidecar: Obj, options: Obj) -> None:
    """What the user's autoscalerOptions replace, and what they add to."""
    for field in ("image", "imagePullPolicy", "resources", "securityContext", "command", "args"):
        if options.get(field):
            sidecar[field] = deepcopy(options[field])
    for field in ("env", "envFrom", "volumeMounts"):
        if options.get(field):
            sidecar[field] = [*sidecar.get(field, []), *deepcopy(options[field])]


def add_empty_dir(pod: Obj, container: Obj, name: str, path: str, *, medium: str = "") -> None:
    mounts = container.setdefault("volumeMounts", [])
    if any(mount["mountPath"] == path for mount in mounts):
        return
    volumes = pod["spec"].setdefault("volumes", [])
    if not any(volume["name"] == name for volume in volumes):
        resources = container.get("resources") or {}
        wanted = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        source = {"medium": medium} if medium else {}
        if medium and "memory" in wanted:
            source["sizeLimit"] = wanted["memory"]
        volumes.append({"name": name, "emptyDir": source})
    mounts.append({"name": name, "mountPath": path})


def _add(container: Obj, variable: dict[str, Any]) -> None:
    container.setdefault("env", []).append(variable)


def _add_field(container: Obj, name: str, field: str) -> None:
    # The API server fills in the version, as in whatever asks for a field.
    _add(container, {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}})


def add_env(container: Obj, name: str, value: str) -> None:
    _add(container, {"name": name, "value": value})


def default_env(container: Obj, name: str, value: str) -> None:
    if not any(variable["name"] == name for variable in container.get("env") or []):
        add_env(container, name, value)
