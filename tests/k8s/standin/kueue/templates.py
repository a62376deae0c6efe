"""What Kueue writes into the pod templates of a RayCluster, and so becomes an owner of."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

from tests.k8s.standin.runtime.client import Obj

GROUP = "kueue.x-k8s.io"
GATE = f"{GROUP}/elastic-job"
"""Scheduling gate of the pods of an elastic job."""
POD_SET = f"{GROUP}/podset"
MANAGER = "kueue"
_QUEUE, _CLUSTER_QUEUE = f"{GROUP}/queue-name", f"{GROUP}/cluster-queue-name"


def gates_of(pod_spec: Obj) -> list[str]:
    return [gate["name"] for gate in pod_spec.get("schedulingGates") or []]


def ungated(pod_spec: Obj) -> Obj:
    """Patch that lets the scheduler place the pod."""
    left = [gate for gate in pod_spec.get("schedulingGates") or [] if gate["name"] != GATE]
    return {"spec": {"schedulingGates": left or None}}


def are_gated(cluster: Obj) -> bool:
    return all(GATE in gates_of(each["template"]["spec"]) for each in _groups(cluster["spec"]))


def gated(cluster: Obj) -> Obj:
    """Patch that a webhook's answer to the request that created an elastic job is here."""
    spec = _copied(cluster)
    for group in _groups(spec):
        pod_spec = group["template"]["spec"]
        if GATE not in gates_of(pod_spec):
            pod_spec["schedulingGates"] = [*(pod_spec.get("schedulingGates") or []), {"name": GATE}]
    return _patch(cluster, {**spec, "suspend": True})


def started(cluster: Obj, workload: Obj, flavors: Mapping[str, Obj]) -> Obj:
    """Patch that starts an admitted cluster: labels, and node selectors of its flavors."""
    spec = _copied(cluster)
    admission = workload["status"]["admission"]
    pod_sets = {each["name"]: each for each in admission["podSetAssignments"]}
    for group in _groups(spec):
        name = group.get("groupName", "head")
        labels = {
            POD_SET: name, _QUEUE: workload["spec"]["queueName"],
            _CLUSTER_QUEUE: admission["clusterQueue"],
        }  # fmt: skip
        meta = group["template"].setdefault("metadata", {})
        meta["labels"] = (meta.get("labels") or {}) | labels
        selector: dict[str, str] = {}
        for flavor in pod_sets[name]["flavors"].values():
            selector |= flavors.get(flavor, {}).get("spec", {}).get("nodeLabels") or {}
        if selector:
            pod_spec = group["template"]["spec"]
            pod_spec["nodeSelector"] = (pod_spec.get("nodeSelector") or {}) | selector
    return _patch(cluster, {**spec, "suspend": False})


def _groups(spec: Obj) -> list[Obj]:
    return [spec["headGroupSpec"], *(spec.get("workerGroupSpecs") or [])]


def _copied(cluster: Obj) -> Obj:
    return {key: deepcopy(cluster["spec"][key]) for key in ("headGroupSpec", "workerGroupSpecs")
            if key in cluster["spec"]}  # fmt: skip


def _patch(cluster: Obj, spec: Obj) -> Obj:
    """Lists are replaced as a whole, so the patch holds for this version only."""
    version = cluster["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version}, "spec": spec}
