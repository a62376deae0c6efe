"""The status that KubeRay's operator 1.7 writes: sticky where it is sticky, silent where it is."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tests.k8s.standin.runtime.client import Obj
from tests.k8s.standin.runtime.events import now
from tests.k8s.standin.runtime.quantities import total

PROVISIONED, HEAD_READY = "RayClusterProvisioned", "HeadPodReady"
SUSPENDING, SUSPENDED, FAILURE = "RayClusterSuspending", "RayClusterSuspended", "ReplicaFailure"
_PROVISIONING = "RayClusterPodsProvisioning"
# A change of the others alone is not worth a write.
_COMPARED = (
    "state", "reason", "readyWorkerReplicas", "availableWorkerReplicas", "desiredWorkerReplicas",
    "minWorkerReplicas", "maxWorkerReplicas", "endpoints", "head", "conditions",
)  # fmt: skip


def suspend_state(status: Obj) -> str:
    """SUSPENDING, SUSPENDED or nothing."""
    for name in (SUSPENDING, SUSPENDED):
        if condition(status, name).get("status") == "True":
            return name
    return ""


def condition(status: Obj, type: str) -> Obj:
    return next((c for c in status.get("conditions") or [] if c["type"] == type), {})


def differs(old: Obj, new: Obj) -> bool:
    return any(old.get(field) != new.get(field) for field in _COMPARED)


def computed(
    cluster: Obj,
    *,
    pods: list[Obj],
    service: Obj | None,
    error: str | None = None,
    failure: str | None = None,
) -> Obj:
    """The next status; `error` is that of this reconciliation, `failure` its reason if known."""
    status = deepcopy(cluster.get("status") or {})
    spec = cluster["spec"]
    _set_failure(status, error, failure)
    status["observedGeneration"] = cluster["metadata"]["generation"]
    _count(status, spec, pods)
    head = head_pod(pods)
    if not error and len(pods) == status.get("desiredWorkerReplicas", 0) + 1 and all_ready(pods):
        _set_state(status, "ready")
        status.pop("reason", None)
    _set_conditions(status, spec, pods, head)
    if spec.get("suspend") and not pods:
        _set_state(status, "suspended")
    _set_addresses(status, head, service)
    status["lastUpdateTime"] = now()
    return status


def head_pod(pods: list[Obj]) -> Obj | None:
    heads = [pod for pod in pods if pod["metadata"]["labels"].get("ray.io/node-type") == "head"]
    return heads[0] if heads else None


def desired_replicas(group: Obj) -> int:
    """Pods of a group: `replicas` within its bounds, times its hosts."""
    if group.get("suspend"):
        return 0
    low, high = group.get("minReplicas") or 0, group.get("maxReplicas", 2**31 - 1)
    wanted = group.get("replicas")
    count = low if wanted is None or wanted < low else min(wanted, high)
    return int(count * group.get("numOfHosts", 1))


def all_ready(pods: list[Obj]) -> bool:
    return bool(pods) and all(
        pod["status"].get("phase") == "Running"
        and ready_condition(pod).get("status", "True") == "True"
        for pod in pods
    )


def ready_condition(pod: Obj) -> Obj:
    return condition(pod.get("status") or {}, "Ready")


def _set_failure(status: Obj, error: str | None, reason: str | None) -> None:
    if error and reason:
        _set(status, FAILURE, "True", reason, error)
    elif not error:
        status["conditions"] = [c for c in status.get("conditions") or [] if c["type"] != FAILURE]


def _count(status: Obj, spec: Obj, pods: list[Obj]) -> None:
    groups = spec.get("workerGroupSpecs") or []
    workers = [p for p in pods if p["metadata"]["labels"].get("ray.io/node-type") == "worker"]
    running = [pod for pod in workers if pod["status"].get("phase") == "Running"]
    ready = [pod for pod in running if ready_condition(pod).get("status") == "True"]
    active = [group for group in groups if not group.get("suspend")]
    counts = {
        "readyWorkerReplicas": len(ready),
        "availableWorkerReplicas": len(running),
        "desiredWorkerReplicas": sum(map(desired_replicas, groups)),
        "minWorkerReplicas": sum(
            (g.get("minReplicas") or 0) * g.get("numOfHosts", 1) for g in active
        ),
        "maxWorkerReplicas": sum(g.get("maxReplicas", 0) * g.get("numOfHosts", 1) for g in active),
    }
    for name, count in counts.items():
        status[name] = count
        if not count:
            del status[name]  # Go leaves zeros out.
    status |= _resources(spec, active)


def _resources(spec: Obj, groups: list[Obj]) -> dict[str, str]:
    parts: dict[str, list[Any]] = {}
    head = [(spec["headGroupSpec"], 1)]
    for group, pods in head + [(g, g.get("replicas", 0) * g.get("numOfHosts", 1)) for g in groups]:
        for container in group["template"]["spec"].get("containers") or []:
            resources = container.get("resources") or {}
            wanted = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
            for name, quantity in wanted.items():
                parts.setdefault(name, []).extend([quantity] * pods)
    gpus = [q for name in parts if name.endswith("gpu") for q in parts[name]]
    return {
        "desiredCPU": total(parts.get("cpu", [])),
        "desiredMemory": total(parts.get("memory", [])),
        "desiredGPU": total(gpus),
        "desiredTPU": total(parts.get("google.com/tpu", [])),
    }


def _set_state(status: Obj, state: str) -> None:
    if status.get("state") != state:
        status["state"] = state
        status["stateTransitionTimes"] = {
            **(status.get("stateTransitionTimes") or {}), state: now(),
        }  # fmt: skip


def _set_conditions(status: Obj, spec: Obj, pods: list[Obj], head: Obj | None) -> None:
    if head is None:
        _set(status, HEAD_READY, "False", "HeadPodNotFound", "Head Pod not found")
    else:
        _set(status, HEAD_READY, *_head_readiness(head))
    before = suspend_state(status)
    if condition(status, PROVISIONED).get("status") != "True" and before != SUSPENDED:
        if all_ready(pods):
            _set(
                status, PROVISIONED, "True", "AllPodRunningAndReadyFirstTime",
                "All Ray Pods are ready for the first time",
            )  # fmt: skip
        else:
            message = "RayCluster Pods are being provisioned for first time"
            _set(status, PROVISIONED, "False", _PROVISIONING, message)
    if before == SUSPENDING:
        if not pods:
            _set(status, PROVISIONED, "False", _PROVISIONING, "RayCluster has been suspended")
            _set(status, SUSPENDING, "False", SUSPENDING)
            _set(status, SUSPENDED, "True", SUSPENDED)
    elif before == SUSPENDED:
        if spec.get("suspend") is False:
            _set(status, SUSPENDED, "False", SUSPENDED)
    else:
        _set(status, SUSPENDED, "False", SUSPENDED)
        _set(status, SUSPENDING, "True" if spec.get("suspend") else "False", SUSPENDING)


def _head_readiness(pod: Obj) -> tuple[str, str, str]:
    """Status, reason and message from the pod's own condition, and from a container that waits."""
    found = ready_condition(pod)
    if not found:
        return "False", "Unknown", ""
    status, message, reason = found["status"], found.get("message", ""), found.get("reason", "")
    if not reason:
        reason = "HeadPodRunningAndReady" if status == "True" else "Unknown"
    if reason == "ContainersNotReady":
        for container in pod["status"].get("containerStatuses") or []:
            state = container.get("state") or {}
            stopped = state.get("waiting") or state.get("terminated")
            if stopped is not None:
                reason = stopped.get("reason", "")
                text = f"{container['name']}: {stopped.get('message', '')}"
                message = f"{message}; {text}" if message else text
                break
    return status, reason, message


def _set_addresses(status: Obj, head: Obj | None, service: Obj | None) -> None:
    info: dict[str, str] = {}
    if head is not None:
        info["podName"] = head["metadata"]["name"]
        info["podIP"] = head["status"].get("podIP", "")
    if service is not None:
        endpoints = status.setdefault("endpoints", {})
        for port in service["spec"]["ports"]:
            target = port.get("nodePort") or port.get("targetPort", port["port"])
            if port.get("name"):
                endpoints[port["name"]] = str(target)
        address = service["spec"].get("clusterIP", "")
        info["serviceName"] = service["metadata"]["name"]
        info["serviceIP"] = info.get("podIP", "") if address == "None" else address
    status["head"] = {name: value for name, value in sorted(info.items()) if value}


def _set(status: Obj, type: str, value: str, reason: str, message: str = "") -> None:
    conditions = status.setdefault("conditions", [])
    new = {"type": type, "status": value, "reason": reason, "message": message}
    for old in conditions:
        if old["type"] == type:
            if old["status"] != value:
                old["lastTransitionTime"] = now()
            old.update(new)
            return
    conditions.append({"lastTransitionTime": now(), **new})
