"""A small scheduler: binds pods to nodes, or says in Kubernetes' words why it cannot."""

from __future__ import annotations

import asyncio

from tests.k8s.standin.nodes.fit import NodeCapacity, blocked, choose
from tests.k8s.standin.runtime.client import TROUBLE, Api, Mirror, Obj
from tests.k8s.standin.runtime.events import Recorder, now

_DONE = ("Failed", "Succeeded")


class Scheduler:
    """Looks at all pending pods whenever a pod, node or claim has changed."""

    def __init__(self, api: Api, *, pods: Mirror, nodes: Mirror, claims: Mirror):
        self._api, self._pods, self._nodes, self._claims = api, pods, nodes, claims
        self._events = Recorder(api, "default-scheduler")
        self._changed = asyncio.Event()
        self._text: dict[str, str] = {}
        for mirror in (pods, nodes, claims):
            mirror.listen(lambda *_: self._changed.set())

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._round()
            await asyncio.sleep(0.02)

    async def _round(self) -> None:
        waiting = [pod for pod in self._pods.items.values() if _is_unscheduled(pod)]
        if not waiting:
            return
        capacities = self._capacities()
        binds = []
        for pod in sorted(waiting, key=_age):
            capacity, message = self._place(pod, list(capacities.values()))
            if capacity is None:
                await self._refuse(pod, message)
            else:
                capacity.take(pod)
                binds.append(self._bind(pod, capacity.name))
        await asyncio.gather(*binds)

    def _capacities(self) -> dict[str, NodeCapacity]:
        capacities = {}
        for node in sorted(self._nodes.items.values(), key=lambda node: node["metadata"]["name"]):
            capacities[node["metadata"]["name"]] = NodeCapacity(node)
        for pod in self._pods.items.values():
            capacity = capacities.get(pod["spec"].get("nodeName", ""))
            if capacity is not None and pod["status"].get("phase") not in _DONE:
                capacity.take(pod)
        return capacities

    def _place(self, pod: Obj, capacities: list[NodeCapacity]) -> tuple[NodeCapacity | None, str]:
        for volume in pod["spec"].get("volumes") or []:
            source = volume.get("persistentVolumeClaim")
            if source is None:
                continue
            claim = self._claims.get(pod["metadata"]["namespace"], source["claimName"])
            if claim is None:
                text = f'persistentvolumeclaim "{source["claimName"]}" not found'
                return None, blocked(text, len(capacities))
            if (claim.get("status") or {}).get("phase") != "Bound":
                text = "pod has unbound immediate PersistentVolumeClaims"
                return None, blocked(text, len(capacities))
        return choose(pod, capacities)

    async def _bind(self, pod: Obj, node: str) -> None:
        try:
            bound = await self._api.merge(pod_path(pod), {"spec": {"nodeName": node}})
        except TROUBLE:
            return  # It was deleted meanwhile.
        self._pods.put(bound)
        self._text.pop(pod["metadata"]["uid"], None)
        where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        message = f"Successfully assigned {where} to {node}"
        await self._events.event(bound, "Scheduled", message, action="Binding")

    async def _refuse(self, pod: Obj, message: str) -> None:
        uid = pod["metadata"]["uid"]
        if self._text.get(uid) == message:
            return
        self._text[uid] = message
        condition = {
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": message, "lastProbeTime": None, "lastTransitionTime": now(),
        }  # fmt: skip
        status = {"phase": "Pending", "conditions": [condition]}
        try:
            await self._api.merge(f"{pod_path(pod)}/status", {"status": status})
        except TROUBLE:
            return
        await self._events.event(
            pod, "FailedScheduling", message, type="Warning", action="Scheduling"
        )


def pod_path(pod: Obj) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def _is_unscheduled(pod: Obj) -> bool:
    if pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") in _DONE:
        return False
    return not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates")


def _age(pod: Obj) -> tuple[int, str, str]:
    meta = pod["metadata"]
    return -(pod["spec"].get("priority") or 0), meta["creationTimestamp"], meta["name"]
