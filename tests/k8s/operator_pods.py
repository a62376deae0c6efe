"""The objects that KubeRay's operator 1.7 makes for a RayCluster, byte by byte as recorded."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from copy import deepcopy
from typing import Any

from llmops_kernel.config.quantity import amount
from tests.k8s import operator_rules as rules
from tests.k8s.operator_client import Obj

KUBERAY = "v1.7.0"
GCS_PORT, AGENT_PORT, METRICS_PORT = "6379", "52365", 8080
_DEFAULT_PORTS = {
    "client": 10001, "dashboard": 8265, "gcs-server": 6379, "metrics": METRICS_PORT, "serve": 8000,
}  # fmt: skip
_SMALL = {"cpu": "200m", "memory": "256Mi"}
_CUSTOM = {
    "aws.amazon.com/neuroncore": "neuron_cores",
    "google.com/tpu": "TPU",
    "huawei.com/Ascend910": "NPU",
}
_WAIT = """
					SECONDS=0
					while true; do
						if (( SECONDS <= 120 )); then
							if ray health-check --address {address} > /dev/null 2>&1; then
								echo "GCS is ready."
								break
							fi
							echo "$SECONDS seconds elapsed: Waiting for GCS to be ready."
						else
							if ray health-check --address {address}; then
								echo "GCS is ready. Any error messages above can be safely ignored."
								break
							fi
							echo "$SECONDS seconds elapsed: Still waiting for GCS to be ready. For \
troubleshooting, refer to the FAQ at https://docs.ray.io/en/master/cluster/kubernetes/\
troubleshooting.html."
						fi
						sleep 5
					done
				"""


def owner(cluster: Obj) -> Obj:
    return {
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "name": cluster["metadata"]["name"],
        "uid": cluster["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip


def clip(name: str) -> str:
    """A name of at most 50 characters that starts with a letter: its end is kept."""
    name = name[-50:]
    return name if name[0].isalpha() else "r" + name[1:]


def service_name(cluster: Obj) -> str:
    custom = cluster["spec"]["headGroupSpec"].get("headService") or {}
    return custom.get("metadata", {}).get("name") or f"{cluster['metadata']['name']}-head-svc"


def service_fqdn(cluster: Obj) -> str:
    return f"{service_name(cluster)}.{cluster['metadata']['namespace']}.svc.cluster.local"


def identity(cluster: Obj, node_type: str) -> dict[str, str]:
    name = cluster["metadata"]["name"]
    return {
        "ray.io/cluster": name,
        "ray.io/node-type": node_type,
        "ray.io/identifier": f"{name}-{node_type}",
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }


def spec_hash(spec: Obj) -> str:
    """Of all that a change of which makes new pods under upgradeStrategy Recreate."""
    spec = deepcopy(spec)
    spec.pop("upgradeStrategy", None)
    for group in [spec["headGroupSpec"], *(spec.get("workerGroupSpecs") or [])]:
        for field in ("replicas", "minReplicas", "maxReplicas"):
            group.pop(field, None)
        (group.get("scaleStrategy") or {}).pop("workersToDelete", None)
        for field in ("tolerations", "schedulingGates"):
            group["template"]["spec"].pop(field, None)
    digest = hashlib.sha1(json.dumps(spec, sort_keys=True).encode()).digest()
    return base64.b32hexencode(digest).decode()


def head_service(cluster: Obj) -> Obj:
    head = cluster["spec"]["headGroupSpec"]
    custom = deepcopy(head.get("headService") or {})
    labels = identity(cluster, "head")
    ports = {
        port.get("name") or f"{port['containerPort']}-port": port["containerPort"]
        for port in head["template"]["spec"]["containers"][0].get("ports") or []
    } or dict(_DEFAULT_PORTS)
    ports.setdefault("metrics", METRICS_PORT)
    kind = head.get("serviceType") or "ClusterIP"
    spec: Obj = {
        "type": kind,
        "selector": labels,
        "ports": [
            {"name": name, "port": port, "appProtocol": "tcp"}
            for name, port in sorted(ports.items())
        ],
    }
    if kind == "ClusterIP" and not custom:
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    custom_spec = custom.get("spec", {})
    spec["ports"] = [*custom_spec.pop("ports", []), *spec["ports"]]
    annotations = custom.get("metadata", {}).get("annotations", {})
    return {
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": service_name(cluster), "namespace": cluster["metadata"]["namespace"],
            "labels": {**custom.get("metadata", {}).get("labels", {}), **labels},
            "annotations": annotations | (cluster["spec"].get("headServiceAnnotations") or {}),
            "ownerReferences": [owner(cluster)],
        },
        "spec": custom_spec | spec,
    }  # fmt: skip


def token_secret(cluster: Obj, token: str) -> Obj:
    name = cluster["metadata"]["name"]
    return {
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": clip(name), "namespace": cluster["metadata"]["namespace"],
            "labels": {"ray.io/cluster": name}, "ownerReferences": [owner(cluster)],
        },
        "stringData": {"auth_token": token},
    }  # fmt: skip


def head_pod(cluster: Obj) -> Obj:
    spec, group = cluster["spec"], deepcopy(cluster["spec"]["headGroupSpec"])
    params = _params(group)
    params.setdefault("dashboard-host", "0.0.0.0")
    pod = _pod(cluster, group, node_type="head", group_name="headgroup")
    pod["metadata"]["generateName"] = _prefix(cluster["metadata"]["name"], "head")
    annotations = pod["metadata"].setdefault("annotations", {})
    container = pod["spec"]["containers"][0]
    if rules.autoscaling(spec):
        _add_autoscaler(cluster, pod, params)
    annotations["ray.io/ft-enabled"] = str(rules.fault_tolerant(spec)).lower()
    if rules.fault_tolerant(spec):
        _add_redis(cluster, container, params, annotations)
    _finish(cluster, pod, params, node_type="head")
    annotations["ray.io/upgrade-strategy-recreate-hash"] = spec_hash(spec)
    annotations["ray.io/kuberay-version"] = KUBERAY
    return pod


def worker_pod(cluster: Obj, group: Obj, *, index: int, replica: str = "", host: int = 0) -> Obj:
    group = deepcopy(group)
    params = _params(group)
    params.setdefault("address", f"{service_fqdn(cluster)}:{gcs_port(cluster)}")
    name = group["groupName"]
    pod = _pod(cluster, group, node_type="worker", group_name=name)
    pod["metadata"]["generateName"] = _prefix(f"{cluster['metadata']['name']}-{name}", "worker")
    pod["metadata"]["labels"]["ray.io/worker-group-replica-index"] = str(index)
    if group.get("numOfHosts", 1) > 1:
        pod["metadata"]["labels"]["ray.io/worker-group-replica-name"] = replica
        pod["metadata"]["labels"]["ray.io/replica-host-index"] = str(host)
    container = pod["spec"]["containers"][0]
    pod["spec"].setdefault("initContainers", []).append(_wait_container(cluster, container))
    if rules.fault_tolerant(cluster["spec"]):
        _default_env(container, "RAY_gcs_rpc_server_reconnect_timeout_s", "600")
    if rules.autoscaler_v2(cluster["spec"]):
        pod["spec"]["restartPolicy"] = "Never"
    _finish(cluster, pod, params, node_type="worker")
    return pod


def gcs_port(cluster: Obj) -> str:
    return str((cluster["spec"]["headGroupSpec"].get("rayStartParams") or {}).get("port", GCS_PORT))


def _prefix(name: str, node_type: str) -> str:
    return f"{name[:50]}-{node_type}-".lower()


def _params(group: Obj) -> dict[str, str]:
    """Start parameters of the group, with what its top-level `resources` and `labels` add."""
    params = dict(group.get("rayStartParams") or {})
    custom = {}
    for name, quantity in (group.get("resources") or {}).items():
        value = amount(quantity)
        known = {"cpu": "num-cpus", "memory": "memory"}.get(name.lower())
        known = known or ("num-gpus" if name.lower().endswith("gpu") else None)
        if known:
            params[known] = str(math.ceil(value))
        else:
            custom[name] = float(value)
    if custom:
        params["resources"] = f"'{json.dumps(custom, sort_keys=True)}'"
    if group.get("labels"):
        params["labels"] = ",".join(f"{k}={v}" for k, v in sorted(group["labels"].items()))
    return params


def _pod(cluster: Obj, group: Obj, *, node_type: str, group_name: str) -> Obj:
    template = group["template"]
    meta = template.get("metadata") or {}
    fixed = {
        "ray.io/is-ray-node": "yes", "ray.io/group": group_name, **identity(cluster, node_type),
    }  # fmt: skip
    kept = {k: fixed[k] for k in ("ray.io/node-type", "ray.io/group", "ray.io/cluster")}
    labels = fixed | (meta.get("labels") or {}) | (group.get("labels") or {}) | kept
    pod: Obj = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": cluster["metadata"]["namespace"], "labels": labels,
            "ownerReferences": [owner(cluster)],
        },
        "spec": deepcopy(template["spec"]),
    }  # fmt: skip
    if meta.get("annotations"):
        pod["metadata"]["annotations"] = dict(meta["annotations"])
    return pod


def _wait_container(cluster: Obj, container: Obj) -> Obj:
    kept = ("image", "imagePullPolicy", "securityContext", "env", "volumeMounts")
    address = f"{service_fqdn(cluster)}:{gcs_port(cluster)}"
    return {
        **deepcopy({key: container[key] for key in kept if key in container}),
        "name": "wait-gcs-ready",
        "command": ["/bin/bash", "-c", "--"],
        "args": [_WAIT.format(address=address)],
        "resources": {"limits": dict(_SMALL), "requests": dict(_SMALL)},
    }


def _finish(cluster: Obj, pod: Obj, params: dict[str, str], *, node_type: str) -> None:
    """What head and workers have in common: ports, token, shared memory, command, probes."""
    container = pod["spec"]["containers"][0]
    ports = container.setdefault("ports", [])
    if not any(port.get("name") == "metrics" for port in ports):
        ports.append({"name": "metrics", "containerPort": METRICS_PORT})
    if rules.token_auth(cluster["spec"]):
        _add_token(cluster, container)
        for other in pod["spec"].get("initContainers", []):
            if other["name"] == "wait-gcs-ready":
                _add_token(cluster, other)
    if "plasma-directory" not in params:
        _add_empty_dir(pod, container, "shared-mem", "/dev/shm", medium="Memory")
    params.setdefault("metrics-export-port", str(METRICS_PORT))
    params.setdefault("dashboard-agent-listen-port", AGENT_PORT)
    params["block"] = "true"
    command = _start_command(params, container, node_type=node_type)
    _set_command(cluster, container, command)
    for other in pod["spec"].get("initContainers", []):
        _add_env(other, "FQ_RAY_IP", service_fqdn(cluster))
        _add_env(other, "RAY_IP", service_name(cluster))
    _set_env(cluster, container, command, node_type=node_type)
    _set_probes(cluster, container, params, node_type=node_type)


def _set_command(cluster: Obj, container: Obj, command: str) -> None:
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


def _start_command(params: dict[str, str], container: Obj, *, node_type: str) -> str:
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


def _set_env(cluster: Obj, container: Obj, command: str, *, node_type: str) -> None:
    address = "127.0.0.1"
    if node_type == "worker":
        address = service_fqdn(cluster)
        _add_env(container, "FQ_RAY_IP", address)
        _add_env(container, "RAY_IP", service_name(cluster))
    for name, field in (
        ("RAY_CLUSTER_NAME", "metadata.labels['ray.io/cluster']"),
        ("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
        ("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
        ("RAY_NODE_TYPE_NAME", "metadata.labels['ray.io/group']"),
    ):
        # The API server fills in the version, as in whatever asks for a field.
        _add(container, {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}})
    _add_env(container, "KUBERAY_GEN_RAY_START_CMD", command)
    _default_env(container, "RAY_PORT", gcs_port(cluster))
    _default_env(container, "RAY_ADDRESS", f"{address}:{gcs_port(cluster)}")
    _default_env(container, "RAY_USAGE_STATS_KUBERAY_IN_USE", "1")
    if node_type == "head":
        tags = f"kuberay_version={KUBERAY};kuberay_crd=RayCluster"
        _add_env(container, "RAY_USAGE_STATS_EXTRA_TAGS", tags)
    _default_env(container, "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1")


def _set_probes(cluster: Obj, container: Obj, params: dict[str, str], *, node_type: str) -> None:
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


def _add_token(cluster: Obj, container: Obj) -> None:
    _default_env(container, "RAY_AUTH_MODE", "token")
    options = cluster["spec"]["authOptions"]
    if options.get("enableK8sTokenAuth"):
        _default_env(container, "RAY_ENABLE_K8S_TOKEN_AUTH", "true")
        return
    name = options.get("secretName") or clip(cluster["metadata"]["name"])
    if not any(variable["name"] == "RAY_AUTH_TOKEN" for variable in container.get("env") or []):
        source = {"secretKeyRef": {"name": name, "key": "auth_token"}}
        _add(container, {"name": "RAY_AUTH_TOKEN", "valueFrom": source})


def _add_redis(cluster: Obj, container: Obj, params: dict[str, str], annotations: Obj) -> None:
    options = cluster["spec"]["gcsFaultToleranceOptions"]
    space = options.get("externalStorageNamespace") or cluster["metadata"]["uid"]
    annotations["ray.io/external-storage-namespace"] = space
    _default_env(container, "RAY_external_storage_namespace", space)
    _add_env(container, "RAY_REDIS_ADDRESS", options.get("redisAddress", ""))
    for field, flag, variable in (
        ("redisUsername", "redis-username", "REDIS_USERNAME"),
        ("redisPassword", "redis-password", "REDIS_PASSWORD"),
    ):
        if options.get(field):
            params[flag] = f"${variable}"
            _add(container, {"name": variable, **deepcopy(options[field])})


def _add_autoscaler(cluster: Obj, pod: Obj, params: dict[str, str]) -> None:
    """A side-car that nobody runs here: our simulated autoscaler changes nothing."""
    params["no-monitor"] = "true"
    spec, options = pod["spec"], cluster["spec"].get("autoscalerOptions") or {}
    spec["serviceAccountName"] = service_account(cluster)
    sidecar: Obj = {
        "name": "autoscaler",
        "image": options.get("image") or spec["containers"][0]["image"],
        "imagePullPolicy": options.get("imagePullPolicy") or "IfNotPresent",
        "command": ["/bin/bash", "-c", "--"],
        "args": [
            "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME)"
            " --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
        ],
        "resources": options.get("resources") or {
            "limits": {"cpu": "500m", "memory": "512Mi"},
            "requests": {"cpu": "500m", "memory": "512Mi"},
        },
    }  # fmt: skip
    if rules.token_auth(cluster["spec"]):
        _add_token(cluster, sidecar)
    spec["containers"].append(sidecar)
    is_v2 = rules.autoscaler_v2(cluster["spec"])
    _add_env(spec["containers"][0], rules.V2_ENV, str(is_v2).lower())
    if is_v2:
        spec["restartPolicy"] = "Never"


def service_account(cluster: Obj) -> str:
    template = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    return clip(template.get("serviceAccountName") or cluster["metadata"]["name"])


def _add_empty_dir(pod: Obj, container: Obj, name: str, path: str, *, medium: str) -> None:
    mounts = container.setdefault("volumeMounts", [])
    if any(mount["mountPath"] == path for mount in mounts):
        return
    volumes = pod["spec"].setdefault("volumes", [])
    if not any(volume["name"] == name for volume in volumes):
        resources = container.get("resources") or {}
        wanted = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        source = {"medium": medium}
        if "memory" in wanted:
            source["sizeLimit"] = wanted["memory"]
        volumes.append({"name": name, "emptyDir": source})
    mounts.append({"name": name, "mountPath": path})


def _add(container: Obj, variable: dict[str, Any]) -> None:
    container.setdefault("env", []).append(variable)


def _add_env(container: Obj, name: str, value: str) -> None:
    _add(container, {"name": name, "value": value})


def _default_env(container: Obj, name: str, value: str) -> None:
    if not any(variable["name"] == name for variable in container.get("env") or []):
        _add_env(container, name, value)
