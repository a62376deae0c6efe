"""pods/log: what a container wrote, from the file that the pod's annotations name."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.k8s.standin.objects.errors import bad_request
from tests.k8s.standin.objects.store import Snapshot, Store

POLL_S = 0.1
CHUNK = 64 * 1024


async def log(http: web.Request, store: Store, pod: Snapshot) -> web.StreamResponse:
    """The log, or its tail; with `follow` as long as the pod lives."""
    name = _container(pod, http.query.get("container", ""))
    if not pod.body["spec"].get("nodeName") and _file(pod, name) is None:
        return web.Response(status=204)
    _check_started(pod, name)
    if http.query.get("previous") == "true":
        raise bad_request(f'previous terminated container "{name}" in pod "{pod.key[1]}" not found')
    file = _file(pod, name)
    there = file is not None and file.exists()
    # Before the headers: a client that has them may count on what is written from then on.
    start = _start(file, http.query) if file and there else 0
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(http)
    if file is None or not there:
        return response
    with file.open("rb") as stream:
        stream.seek(start)
        limit = int(http.query.get("limitBytes") or 1 << 40)
        while limit > 0:
            data = stream.read(min(CHUNK, limit))
            limit -= len(data)
            if data:
                await response.write(data)
            elif http.query.get("follow") != "true" or _ended(store, pod):
                break
            else:
                await asyncio.sleep(POLL_S)
    return response


def _containers(pod: Snapshot) -> list[str]:
    return [item["name"] for item in pod.body["spec"]["containers"]]


def _container(pod: Snapshot, wanted: str) -> str:
    names = _containers(pod)
    init = [item["name"] for item in pod.body["spec"].get("initContainers") or ()]
    if not wanted and len(names) > 1:
        raise bad_request(
            f"a container name must be specified for pod {pod.key[1]}, "
            f"choose one of: [{' '.join(names)}]"
        )
    if wanted and wanted not in (*names, *init):
        raise bad_request(f"container {wanted} is not valid for pod {pod.key[1]}")
    return wanted or names[0]


def _check_started(pod: Snapshot, name: str) -> None:
    status = pod.body.get("status", {})
    states: list[dict[str, Any]] = [
        *(status.get("containerStatuses") or ()),
        *(status.get("initContainerStatuses") or ()),
    ]
    for item in states:
        waiting = item.get("state", {}).get("waiting")
        if item["name"] == name and waiting and not item.get("lastState"):
            raise bad_request(
                f'container "{name}" in pod "{pod.key[1]}" is waiting to start: '
                f"{waiting.get('reason', 'ContainerCreating')}"
            )


def _file(pod: Snapshot, container: str) -> Path | None:
    annotations = pod.body["metadata"].get("annotations") or {}
    by_name = json.loads(annotations.get("standin/logs", "{}"))
    path = by_name.get(container) or annotations.get("standin/log")
    return Path(path) if path else None


def _start(file: Path, query: Any) -> int:
    """The offset at which the last `tailLines` lines begin."""
    lines = query.get("tailLines")
    if lines is None:
        return 0
    text = file.read_bytes()
    wanted, offset = int(lines), len(text)
    if not wanted:
        return offset
    if text.endswith(b"\n"):
        offset -= 1
    for _ in range(wanted):
        offset = text.rfind(b"\n", 0, offset)
        if offset < 0:
            return 0
    return offset + 1


def _ended(store: Store, pod: Snapshot) -> bool:
    current = store.uids.get(pod.uid)
    phase = current.body.get("status", {}).get("phase") if current else None
    return phase in (None, "Succeeded", "Failed")
