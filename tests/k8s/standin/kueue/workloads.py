"""A small Kueue: Workloads for queued RayClusters, admitted in order while the quota lasts."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from decimal import Decimal
from typing import Any

from tests.k8s.standin.kueue import quota as quota
from tests.k8s.standin.operator import names as names
from tests.k8s.standin.operator.status import condition
from tests.k8s.standin.runtime.client import TROUBLE, Api, Mirror, Obj
from tests.k8s.standin.runtime.events import Recorder, now

GROUP, VERSION = "kueue.x-k8s.io", "v1beta1"
BASE = f"/apis/{GROUP}/{VERSION}"
QUEUE_LABEL = f"{GROUP}/queue-name"
_KINDS = (
    ("Workload", "workloads", True), ("LocalQueue", "localqueues", True),
    ("ClusterQueue", "clusterqueues", False), ("ResourceFlavor", "resourceflavors", False),
    ("WorkloadPriorityClass", "workloadpriorityclasses", False),
)  # fmt: skip


def crds() -> list[Obj]:
    """Kueue's kinds with any content; what is looked at here is checked here."""
    made = []
    for kind, plural, is_namespaced in _KINDS:
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        versions = [
            {
                "name": name, "served": True, "storage": name == VERSION,
                "schema": {"openAPIV3Schema": anything}, "subresources": {"status": {}},
            }
            for name in (VERSION,)
        ]  # fmt: skip
        made.append({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{GROUP}"},
            "spec": {
                "group": GROUP, "scope": "Namespaced" if is_namespaced else "Cluster",
                "names": {
                    "kind": kind, "plural": plural, "singular": kind.lower(),
                    "listKind": f"{kind}List",
                },
                "versions": versions,
            },
        })  # fmt: skip
    return made


def cluster_queue(name: str, **quotas: str) -> Obj:
    """One flavor; `gpu` stands for nvidia.com/gpu."""
    resources = [
        {"name": "nvidia.com/gpu" if key == "gpu" else key, "nominalQuota": value}
        for key, value in quotas.items()
    ]
    names = [resource["name"] for resource in resources]
    flavors = [{"name": "default-flavor", "resources": resources}]
    return {
        "apiVersion": f"{GROUP}/{VERSION}", "kind": "ClusterQueue", "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": [{"coveredResources": names, "flavors": flavors}],
        },
    }  # fmt: skip


def local_queue(name: str, *, namespace: str, cluster_queue: str) -> Obj:
    return {
        "apiVersion": f"{GROUP}/{VERSION}", "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": cluster_queue},
    }  # fmt: skip


class Kueue:
    """One pass over everything after each change; small numbers, so no cleverness."""

    def __init__(self, api: Api, *, clusters: Mirror, pods: Mirror):
        self._api, self._clusters, self._pods = api, clusters, pods
        self._workloads = Mirror(api, f"{BASE}/workloads")
        self._local = Mirror(api, f"{BASE}/localqueues")
        self._queues = Mirror(api, f"{BASE}/clusterqueues")
        self._events = Recorder(api, "kueue-controller-manager")
        self._changed = asyncio.Event()
        for mirror in (clusters, pods, self._workloads, self._local, self._queues):
            mirror.listen(lambda *_: self._changed.set())

    def may_run(self, cluster: Obj) -> bool:
        """False for a queued one before its admission: a webhook would have suspended it."""
        if not _queue(cluster) or cluster["spec"].get("suspend"):
            return True
        workload = self._workloads.get(cluster["metadata"]["namespace"], workload_name(cluster))
        return workload is not None and _is_admitted(workload)

    async def run(self) -> None:
        mirrors = (self._workloads, self._local, self._queues)
        tasks = [asyncio.create_task(mirror.run()) for mirror in mirrors]
        try:
            await asyncio.gather(*(mirror.synced.wait() for mirror in mirrors))
            while True:
                self._changed.clear()
                await self._pass()
                await self._changed.wait()
                await asyncio.sleep(0.05)
        finally:
            for task in tasks:
                task.cancel()

    async def _pass(self) -> None:
        queued = [c for c in self._clusters.items.values() if _queue(c)]
        for cluster in sorted(queued, key=lambda c: c["metadata"]["creationTimestamp"]):
            try:
                await self._serve(cluster)
            except TROUBLE:
                continue  # It changed under our hands; that change brings the next pass.
        for queue in list(self._queues.items.values()):
            with contextlib.suppress(*TROUBLE):
                await self._write_usage(queue)

    async def _serve(self, cluster: Obj) -> None:
        namespace, name = cluster["metadata"]["namespace"], workload_name(cluster)
        workload = self._workloads.get(namespace, name)
        if workload is not None and not _is_for(workload, cluster):
            await self._api.delete(f"{BASE}/namespaces/{namespace}/workloads/{name}")
            self._workloads.drop(workload)
            workload = None
        if workload is None:
            workload = await self._create(cluster)
        if _is_evicted(workload) or workload["spec"].get("active") is False:
            await self._suspend(cluster, suspended=True)
        elif _is_admitted(workload):
            await self._suspend(cluster, suspended=False)
            await self._report_pods_ready(workload, cluster)
        else:
            await self._suspend(cluster, suspended=True)
            await self._try(workload, cluster)

    async def _create(self, cluster: Obj) -> Obj:
        namespace = cluster["metadata"]["namespace"]
        body = {
            "apiVersion": f"{GROUP}/{VERSION}", "kind": "Workload",
            "metadata": {
                "name": workload_name(cluster), "namespace": namespace,
                "ownerReferences": [names.owner(cluster)],
            },
            "spec": {
                "queueName": _queue(cluster), "active": True, "priority": 0,
                "podSets": quota.pod_sets(cluster),
            },
        }  # fmt: skip
        made = await self._api.create(f"{BASE}/namespaces/{namespace}/workloads", body)
        self._workloads.put(made)
        message = f"Created Workload: {namespace}/{made['metadata']['name']}"
        await self._events.event(cluster, "CreatedWorkload", message)
        return made

    async def _suspend(self, cluster: Obj, *, suspended: bool) -> None:
        if bool(cluster["spec"].get("suspend")) == suspended and "suspend" in cluster["spec"]:
            return
        meta = cluster["metadata"]
        path = f"/apis/ray.io/v1/namespaces/{meta['namespace']}/rayclusters/{meta['name']}"
        self._clusters.put(await self._api.merge(path, {"spec": {"suspend": suspended}}))
        if suspended:
            await self._events.event(cluster, "Stopped", "Workload is not admitted")
        else:
            await self._events.event(cluster, "Started", "Admitted by clusterQueue")

    async def _try(self, workload: Obj, cluster: Obj) -> None:
        namespace, wanted = cluster["metadata"]["namespace"], _queue(cluster)
        local = self._local.get(namespace, wanted)
        if local is None:
            text = f"LocalQueue {wanted} doesn't exist"
            await self._reserve(workload, False, "Inadmissible", text)
            return
        queue = self._queues.get("", local["spec"]["clusterQueue"])
        if queue is None:
            text = f"ClusterQueue {local['spec']['clusterQueue']} doesn't exist"
            await self._reserve(workload, False, "Inadmissible", text)
            return
        if queue["spec"].get("stopPolicy", "None") != "None":
            text = f"ClusterQueue {queue['metadata']['name']} is inactive"
            await self._reserve(workload, False, "Inadmissible", text)
            return
        why = quota.refusal(quota.requests(workload), queue, self._used(queue))
        if why is not None:
            await self._reserve(workload, False, "Pending", why)
            return
        await self._admit(workload, queue["metadata"]["name"])

    def _used(self, queue: Obj) -> dict[str, Decimal]:
        sums: dict[str, Decimal] = {}
        for workload in self._workloads.items.values():
            if _admitted_by(workload) == queue["metadata"]["name"]:
                for name, quantity in quota.total(quota.requests(workload)).items():
                    sums[name] = sums.get(name, Decimal(0)) + quantity
        return sums

    async def _admit(self, workload: Obj, queue: str) -> None:
        status = {"admission": {"clusterQueue": queue}}
        text = f"Quota reserved in ClusterQueue {queue}"
        await self._write(workload, status, [("QuotaReserved", "True", "QuotaReserved", text),
                                             ("Admitted", "True", "Admitted",
                                              "The workload is admitted")])  # fmt: skip

    async def _reserve(self, workload: Obj, is_reserved: bool, reason: str, text: str) -> None:
        status = "True" if is_reserved else "False"
        found = condition(workload.get("status") or {}, "QuotaReserved")
        if (found.get("status"), found.get("message")) != (status, text):
            await self._write(workload, {}, [("QuotaReserved", status, reason, text)])
            await self._events.event(workload, reason, text)

    async def _report_pods_ready(self, workload: Obj, cluster: Obj) -> None:
        ready = (cluster.get("status") or {}).get("state") == "ready"
        found = condition(workload.get("status") or {}, "PodsReady")
        status = "True" if ready else "False"
        if found.get("status") != status:
            reason = "Started" if ready else "WaitForStart"
            text = (
                "All pods were ready or succeeded since the workload admission"
                if ready
                else "Not all pods are ready or succeeded"
            )
            await self._write(workload, {}, [("PodsReady", status, reason, text)])

    async def _write(
        self, workload: Obj, status: Obj, changes: list[tuple[str, str, str, str]]
    ) -> None:
        conditions = [
            c
            for c in (workload.get("status") or {}).get("conditions") or []
            if c["type"] not in {change[0] for change in changes}
        ]
        generation = workload["metadata"].get("generation", 1)
        for type, value, reason, message in changes:
            conditions.append({
                "type": type, "status": value, "reason": reason, "message": message,
                "lastTransitionTime": now(), "observedGeneration": generation,
            })  # fmt: skip
        meta = workload["metadata"]
        path = f"{BASE}/namespaces/{meta['namespace']}/workloads/{meta['name']}/status"
        changed = await self._api.merge(path, {"status": {**status, "conditions": conditions}})
        self._workloads.put(changed)

    async def _write_usage(self, queue: Obj) -> None:
        name = queue["metadata"]["name"]
        used = quota.usage(queue, self._used(queue))
        ours = [w for w in self._workloads.items.values() if self._belongs(w, name)]
        admitted = sum(map(_is_admitted, ours))
        active = {
            "type": "Active", "status": "True", "reason": "Ready",
            "message": "Can admit new workloads", "lastTransitionTime": now(),
        }  # fmt: skip
        status: dict[str, Any] = {
            "flavorsReservation": used, "flavorsUsage": used, "admittedWorkloads": admitted,
            "reservingWorkloads": admitted, "pendingWorkloads": len(ours) - admitted,
        }  # fmt: skip
        old = queue.get("status") or {}
        if any(old.get(field) != value for field, value in status.items()):
            status["conditions"] = old.get("conditions") or [active]
            path = f"{BASE}/clusterqueues/{name}/status"
            self._queues.put(await self._api.merge(path, {"status": status}))

    def _belongs(self, workload: Obj, queue: str) -> bool:
        local = self._local.get(workload["metadata"]["namespace"], workload["spec"]["queueName"])
        return local is not None and local["spec"]["clusterQueue"] == queue


def workload_name(cluster: Obj) -> str:
    name = f"raycluster-{cluster['metadata']['name']}"
    return f"{name}-{hashlib.sha1(cluster['metadata']['uid'].encode()).hexdigest()[:5]}"


def _queue(cluster: Obj) -> str:
    return str((cluster["metadata"].get("labels") or {}).get(QUEUE_LABEL, ""))


def _is_for(workload: Obj, cluster: Obj) -> bool:
    """Return False when the cluster was scaled or changed its queue: a new workload follows."""
    sizes = [(each["name"], each["count"]) for each in quota.pod_sets(cluster)]
    made = [(each["name"], each["count"]) for each in workload["spec"]["podSets"]]
    return sizes == made and workload["spec"]["queueName"] == _queue(cluster)


def _is_admitted(workload: Obj) -> bool:
    return condition(workload.get("status") or {}, "Admitted").get("status") == "True"


def _is_evicted(workload: Obj) -> bool:
    return condition(workload.get("status") or {}, "Evicted").get("status") == "True"


def _admitted_by(workload: Obj) -> str:
    admission = (workload.get("status") or {}).get("admission") or {}
    return str(admission.get("clusterQueue", "")) if _is_admitted(workload) else ""
