"""A small Kueue: Workloads for queued RayClusters, admitted in order while the quota lasts."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from decimal import Decimal
from typing import Any

from tests.k8s.standin.kueue import quota as quota
from tests.k8s.standin.kueue import slices as slices
from tests.k8s.standin.kueue import templates as templates
from tests.k8s.standin.nodes.scheduler import pod_path
from tests.k8s.standin.operator import names as names
from tests.k8s.standin.operator.status import condition
from tests.k8s.standin.runtime.client import TROUBLE, Api, Mirror, Obj
from tests.k8s.standin.runtime.events import Recorder, now

GROUP, VERSION = templates.GROUP, "v1beta1"
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
    """One pass over everything after each change; small numbers, so no cleverness.

    `elastic` is the feature gate ElasticJobsViaWorkloadSlices, on by default since Kueue 0.18.
    """

    def __init__(self, api: Api, *, clusters: Mirror, pods: Mirror, elastic: bool = True):
        self._api, self._clusters, self._pods, self._elastic = api, clusters, pods, elastic
        self._workloads = Mirror(api, f"{BASE}/workloads")
        self._local = Mirror(api, f"{BASE}/localqueues")
        self._queues = Mirror(api, f"{BASE}/clusterqueues")
        self._flavors = Mirror(api, f"{BASE}/resourceflavors")
        self._events = Recorder(api, "kueue-controller-manager")
        self._changed = asyncio.Event()
        for mirror in (clusters, pods, self._workloads, self._local, self._queues):
            mirror.listen(lambda *_: self._changed.set())

    def may_run(self, cluster: Obj) -> bool:
        """False for a queued one before its admission: a webhook would have suspended it."""
        if not _queue(cluster) or cluster["spec"].get("suspend"):
            return True
        if self._is_elastic(cluster) and not templates.are_gated(cluster):
            return False
        return any(map(slices.has_quota, self._live(cluster)))

    async def run(self) -> None:
        mirrors = (self._workloads, self._local, self._queues, self._flavors)
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
        live = self._live(cluster)
        group_names = {each["name"] for each in quota.pod_sets(cluster)}
        # Another worker group is no other size.
        if self._is_elastic(cluster) and (
            not live or set(slices.sizes_of(live[-1])) == group_names
        ):
            await self._serve_slices(cluster, live)
        else:
            await self._serve_whole(cluster, live)

    async def _serve_whole(self, cluster: Obj, live: list[Obj]) -> None:
        """Another size needs another Workload, and that waits until all pods are gone."""
        if live and not (len(live) == 1 and _is_for(live[0], cluster)):
            await self._suspend(cluster)
            for workload in live:
                await self._api.delete(_path(workload))
                self._workloads.drop(workload)
            live = []
        if not live and (cluster.get("status") or {}).get("state") == "ready":
            await self._suspend(cluster)
            return
        workload = live[0] if live else await self._create(cluster)
        if await self._stands(workload, cluster):
            await self._report_pods_ready(workload, cluster)

    async def _serve_slices(self, cluster: Obj, live: list[Obj]) -> None:
        """Pods of a larger size wait behind their gates; the others run on."""
        if not templates.are_gated(cluster):
            cluster = await self._patch(cluster, templates.gated(cluster))
        workload, wanted = live[-1] if live else None, slices.sizes(quota.pod_sets(cluster))
        if workload is None or slices.sizes_of(workload) != wanted:
            workload = await self._resized(cluster, workload, wanted)
        replaced = [each for each in live if _key(each) != _key(workload)]
        if replaced and not slices.is_admitted(workload):
            await self._try(workload, cluster, replaced=replaced[-1])
        elif await self._stands(workload, cluster):
            for each in replaced:
                await self._finish(each, workload)
            await self._report_pods_ready(workload, cluster)
            await self._ungate(cluster, workload)

    async def _resized(self, cluster: Obj, workload: Obj | None, wanted: slices.Sizes) -> Obj:
        """Return the Workload of the size: the same one if it needs no more quota."""
        if workload is None:
            return await self._create(cluster)
        is_smaller = slices.is_smaller(wanted, slices.sizes_of(workload))
        if slices.is_admitted(workload) and not is_smaller:
            return await self._create(cluster, replaced=workload)
        changed = await self._api.merge(_path(workload), slices.resized(workload, wanted))
        self._workloads.put(changed)
        return changed

    async def _stands(self, workload: Obj, cluster: Obj) -> bool:
        """Start or suspend the cluster as its Workload says; True if it runs."""
        if slices.is_evicted(workload) or workload["spec"].get("active") is False:
            await self._suspend(cluster)
        elif slices.is_admitted(workload):
            await self._start(cluster, workload)
            return True
        else:
            await self._suspend(cluster)
            await self._try(workload, cluster)
        return False

    async def _finish(self, workload: Obj, replacement: Obj) -> None:
        text = (
            f"Replaced to accommodate a workload (UID: {replacement['metadata']['uid']}) due to"
            " workload slice aggregation"
        )
        await self._write(workload, {}, [("Finished", "True", "WorkloadSliceReplaced", text)])

    async def _ungate(self, cluster: Obj, workload: Obj) -> None:
        namespace, name = _key(cluster)
        pods = [
            pod
            for (where, _), pod in self._pods.items.items()
            if where == namespace
            and (pod["metadata"].get("labels") or {}).get("ray.io/cluster") == name
        ]
        for pod in slices.to_ungate(pods, workload):
            patch = templates.ungated(pod["spec"])
            self._pods.put(await self._api.merge(pod_path(pod), patch))

    def _is_elastic(self, cluster: Obj) -> bool:
        return self._elastic and slices.is_asked(cluster)

    def _live(self, cluster: Obj) -> list[Obj]:
        return slices.live(self._workloads.items.values(), cluster)

    async def _create(self, cluster: Obj, *, replaced: Obj | None = None) -> Obj:
        namespace = cluster["metadata"]["namespace"]
        elastic = self._is_elastic(cluster)
        body = {
            "apiVersion": f"{GROUP}/{VERSION}", "kind": "Workload",
            "metadata": {
                "name": workload_name(cluster, is_slice=elastic), "namespace": namespace,
                "annotations": slices.annotations(cluster, replaced) if elastic else {},
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

    async def _start(self, cluster: Obj, workload: Obj) -> None:
        if cluster["spec"].get("suspend") is False:
            return
        flavors = {name: flavor for (_, name), flavor in self._flavors.items.items()}
        await self._patch(cluster, templates.started(cluster, workload, flavors))
        await self._events.event(cluster, "Started", "Admitted by clusterQueue")

    async def _patch(self, cluster: Obj, patch: Obj) -> Obj:
        meta = cluster["metadata"]
        path = f"/apis/ray.io/v1/namespaces/{meta['namespace']}/rayclusters/{meta['name']}"
        changed = await self._api.merge(path, patch, fieldManager=templates.MANAGER)
        self._clusters.put(changed)
        return changed

    async def _suspend(self, cluster: Obj) -> None:
        if not cluster["spec"].get("suspend"):
            await self._patch(cluster, {"spec": {"suspend": True}})
            await self._events.event(cluster, "Stopped", "Workload is not admitted")

    async def _try(self, workload: Obj, cluster: Obj, *, replaced: Obj | None = None) -> None:
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
        why = quota.refusal(quota.requests(workload), queue, self._used(queue, without=replaced))
        if why is not None:
            await self._reserve(workload, False, "Pending", why)
            return
        await self._admit(workload, queue)

    def _used(self, queue: Obj, *, without: Obj | None = None) -> dict[str, Decimal]:
        sums: dict[str, Decimal] = {}
        for workload in self._workloads.items.values():
            if without is not None and _key(workload) == _key(without):
                continue
            if _admitted_by(workload) == queue["metadata"]["name"]:
                for name, quantity in quota.total(quota.requests(workload)).items():
                    sums[name] = sums.get(name, Decimal(0)) + quantity
        return sums

    async def _admit(self, workload: Obj, queue: Obj) -> None:
        name = queue["metadata"]["name"]
        assigned = quota.assignments(workload, queue)
        status = {"admission": {"clusterQueue": name, "podSetAssignments": assigned}}
        text = f"Quota reserved in ClusterQueue {name}"
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
        patch = {"status": {**status, "conditions": conditions}}
        changed = await self._api.merge(f"{_path(workload)}/status", patch)
        self._workloads.put(changed)

    async def _write_usage(self, queue: Obj) -> None:
        name = queue["metadata"]["name"]
        used = quota.usage(queue, self._used(queue))
        ours = [w for w in self._workloads.items.values() if self._belongs(w, name)]
        admitted = sum(map(slices.has_quota, ours))
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
        is_of = local is not None and local["spec"]["clusterQueue"] == queue
        return is_of and not slices.is_finished(workload)


def workload_name(cluster: Obj, *, is_slice: bool = False) -> str:
    """Slices are of one generation of the cluster each."""
    meta = cluster["metadata"]
    mark = f"{meta['uid']}{meta['generation'] if is_slice else ''}"
    return f"raycluster-{meta['name']}-{hashlib.sha1(mark.encode()).hexdigest()[:5]}"


def _path(workload: Obj) -> str:
    namespace, name = _key(workload)
    return f"{BASE}/namespaces/{namespace}/workloads/{name}"


def _key(obj: Obj) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _queue(cluster: Obj) -> str:
    return str((cluster["metadata"].get("labels") or {}).get(QUEUE_LABEL, ""))


def _is_for(workload: Obj, cluster: Obj) -> bool:
    """Return False when the cluster was scaled or changed its queue: a new workload follows."""
    sizes = slices.sizes(quota.pod_sets(cluster))
    return sizes == slices.sizes_of(workload) and workload["spec"]["queueName"] == _queue(cluster)


def _admitted_by(workload: Obj) -> str:
    admission = (workload.get("status") or {}).get("admission") or {}
    return str(admission.get("clusterQueue", "")) if slices.has_quota(workload) else ""
