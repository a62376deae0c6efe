"""The status of ResourceQuotas: what their namespace's pods request."""

from __future__ import annotations

import asyncio
from decimal import Decimal

from tests.k8s.standin.runtime.client import TROUBLE, Api, Mirror, Obj
from tests.k8s.standin.runtime.quantities import canonical, pod_requests

_CORE = {"cpu": "requests.cpu", "memory": "requests.memory"}


class Quotas:
    """Counts pods; other kinds are counted by whoever admits them."""

    def __init__(self, api: Api, *, pods: Mirror):
        self._api, self._pods = api, pods
        self._quotas = Mirror(api, "/api/v1/resourcequotas")
        self._changed = asyncio.Event()
        for mirror in (pods, self._quotas):
            mirror.listen(lambda *_: self._changed.set())

    async def run(self) -> None:
        task = asyncio.create_task(self._quotas.run())
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                for quota in list(self._quotas.items.values()):
                    await self._write(quota)
                await asyncio.sleep(0.1)
        finally:
            task.cancel()

    async def _write(self, quota: Obj) -> None:
        hard = quota["spec"].get("hard") or {}
        taken = self._taken(quota["metadata"]["namespace"])
        used = dict((quota.get("status") or {}).get("used") or {})
        for name in hard:
            if name == "pods" or name in _CORE or name.startswith("requests."):
                is_binary = name.endswith("memory")
                used[name] = canonical(taken.get(name, Decimal(0)), is_binary=is_binary)
        status = {"hard": hard, "used": used}
        if (quota.get("status") or {}) != status:
            meta = quota["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/resourcequotas/{meta['name']}/status"
            try:
                self._quotas.put(await self._api.merge(path, {"status": status}))
            except TROUBLE:
                return

    def _taken(self, namespace: str) -> dict[str, Decimal]:
        taken: dict[str, Decimal] = {}
        for (where, _), pod in self._pods.items.items():
            if where != namespace or pod["status"].get("phase") in ("Failed", "Succeeded"):
                continue
            taken["pods"] = taken.get("pods", Decimal(0)) + 1
            for name, quantity in pod_requests(pod["spec"]).items():
                for each in {name, f"requests.{name}"}:
                    taken[each] = taken.get(each, Decimal(0)) + quantity
        return taken
