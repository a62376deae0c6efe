"""The objects that KubeRay's operator 1.7 makes for a RayCluster, byte by byte as recorded."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from copy import deepcopy

from llmops_kernel.config.models.quantity import amount
from tests.k8s.standin.operator import rules as rules
from tests.k8s.standin.operator.container import (
    add_autoscaler,
    add_empty_dir,
    add_env,
    add_redis,
    add_token,
    default_env,
    set_command,
    set_env,
    set_probes,
    start_command,
)
from tests.k8s.standin.operator.names import (
    AGENT_PORT,
    AUTOSCALER,
    KUBERAY,
    METRICS_PORT,
    clip,
    gcs_port,
    identity,
    owner,
    service_fqdn,
    service_name,
)
from tests.k8s.standin.runtime.client import Obj

_DEFAULT_PORTS = {
    "client": 10001, "dashboard": 8265, "gcs-server": 6379, "metrics": METRICS_PORT, "serve": 8000,
}  # fmt: skip
_SMALL = {"cpu": "200m", "memory": "256Mi"}
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
        add_autoscaler(cluster, pod, params)
    annotations["ray.io/ft-enabled"] = str(rules.fault_tolerant(spec)).lower()
    if rules.fault_tolerant(spec):
        add_redis(cluster, container, params, annotations)
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
        default_env(container, "RAY_gcs_rpc_server_reconnect_timeout_s", "600")
    if rules.autoscaler_v2(cluster["spec"]):
        pod["spec"]["restartPolicy"] = "Never"
    _finish(cluster, pod, params, node_type="worker")
    return pod


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
        add_token(cluster, container)
        for other in pod["spec"].get("initContainers", []):
            if other["name"] == "wait-gcs-ready":
                add_token(cluster, other)
    if "plasma-directory" not in params:
        add_empty_dir(pod, container, "shared-mem", "/dev/shm", medium="Memory")
    if node_type == "head" and rules.autoscaling(cluster["spec"]):
        autoscaler = next(c for c in pod["spec"]["containers"] if c["name"] == AUTOSCALER)
        for shared in (container, autoscaler):
            add_empty_dir(pod, shared, "ray-logs", "/tmp/ray")
    params.setdefault("metrics-export-port", str(METRICS_PORT))
    params.setdefault("dashboard-agent-listen-port", AGENT_PORT)
    params["block"] = "true"
    command = start_command(params, container, node_type=node_type)
    set_command(cluster, container, command)
    for other in pod["spec"].get("initContainers", []):
        add_env(other, "FQ_RAY_IP", service_fqdn(cluster))
        add_env(other, "RAY_IP", service_name(cluster))
    set_env(cluster, container, command, node_type=node_type)
    set_probes(cluster, container, params, node_type=node_type)
