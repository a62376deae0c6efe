"""Events as the newer recorder of client-go writes them: equal ones become a series."""

from __future__ import annotations

import itertools
import time
from datetime import UTC, datetime

from tests.k8s.standin.runtime.client import TROUBLE, Api, Obj


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def now_micro() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Recorder:
    """Writes events about objects; never fails the caller.

    With `source` it writes the older form (component, count), as kubelet does; without it the
    newer one of KubeRay: empty source, `reportingComponent`, one event for equal ones about one
    state of an object (the text does not count).
    """

    def __init__(self, api: Api, component: str, *, has_source: bool = False):
        self._api, self._component, self._has_source = api, component, has_source
        self._written: dict[tuple[str, ...], tuple[str, str, int]] = {}
        self._number = itertools.count(time.time_ns())

    async def event(
        self, obj: Obj, reason: str, message: str, *, type: str = "Normal", action: str = ""
    ) -> None:
        about = reference(obj)
        same = (type, reason, action, *map(str, about.values()))
        if self._has_source:
            # The older recorder counts equal texts about the object, whatever its version.
            about.pop("resourceVersion")
            same = (type, reason, message, *map(str, about.values()))
        try:
            if same in self._written:
                await self._again(same)
            else:
                await self._first(same, about, type, reason, action, message)
        except TROUBLE:
            return

    async def _first(
        self, same: tuple[str, ...], about: Obj, type: str, reason: str, action: str, message: str
    ) -> None:
        path = f"/api/v1/namespaces/{about['namespace']}/events"
        name = f"{about['name']}.{next(self._number):x}"
        body = {
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": about["namespace"]},
            "involvedObject": about, "type": type, "reason": reason, "message": message,
        }  # fmt: skip
        if self._has_source:
            body |= {
                "source": {"component": self._component}, "count": 1,
                "firstTimestamp": now(), "lastTimestamp": now(),
                "reportingComponent": self._component, "reportingInstance": "",
            }  # fmt: skip
        else:
            body |= {
                "source": {}, "action": action, "eventTime": now_micro(),
                "firstTimestamp": None, "lastTimestamp": None,
                "reportingComponent": self._component,
                "reportingInstance": f"{self._component}-standin",
            }  # fmt: skip
        self._written[same] = (path, name, 1)
        while len(self._written) > 5_000:
            del self._written[next(iter(self._written))]
        await self._api.create(path, body)

    async def _again(self, same: tuple[str, ...]) -> None:
        path, name, count = self._written[same]
        self._written[same] = (path, name, count + 1)
        if self._has_source:
            patch: Obj = {"count": count + 1, "lastTimestamp": now()}
        elif count == 1:
            patch = {"series": {"count": 2, "lastObservedTime": now_micro()}}
        else:
            return  # The real one writes the growing count every six minutes only.
        await self._api.merge(f"{path}/{name}", patch)


def reference(obj: Obj) -> Obj:
    meta = obj["metadata"]
    return {
        "apiVersion": obj.get("apiVersion", "v1"), "kind": obj.get("kind", "Pod"),
        "name": meta["name"], "namespace": meta.get("namespace", "default"),
        "uid": meta.get("uid", ""), "resourceVersion": meta.get("resourceVersion", ""),
    }  # fmt: skip
