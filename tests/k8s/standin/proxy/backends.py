"""Where the containers behind a pod or a service really listen."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.k8s.standin.objects.errors import ApiError, not_found
from tests.k8s.standin.objects.kinds import POD, SERVICE
from tests.k8s.standin.objects.selectors import labels_of
from tests.k8s.standin.objects.store import Snapshot, Store

Address = tuple[str, int]


def unavailable(message: str) -> ApiError:
    return ApiError(503, "ServiceUnavailable", message)


def pod_address(pod: Snapshot, port: int) -> Address:
    """Of a container's port: from the pod's annotations, else at the pod's own address."""
    annotations = pod.body["metadata"].get("annotations") or {}
    ports = json.loads(annotations.get("standin/ports", "{}"))
    stated = ports.get(str(port)) or annotations.get("standin/address")
    if stated:
        host, _, number = stated.rpartition(":")
        return host, int(number)
    return pod.body.get("status", {}).get("podIP") or "127.0.0.1", port


def is_ready(pod: Snapshot) -> bool:
    conditions = pod.body.get("status", {}).get("conditions") or []
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def service_address(
    store: Store, namespace: str, name: str, port: str, *, controllers: bool
) -> Address:
    """Of one of the ready pods behind a service."""
    service = store.get(SERVICE, namespace, name)
    if service is None:
        raise not_found("", "services", name)
    wanted = _port(service, name, port)
    selected = _selected(store, namespace, service)
    if not controllers:
        # Nobody makes endpoints: a server without a controller manager answers like this.
        raise not_found("", "services", name)
    if not selected:
        raise unavailable(f'no endpoints available for service "{name}"')
    may = [p for p in selected if is_ready(p) or _unready_too(service)]
    if wanted is None or not may:
        full = f"http:{name}:{port}" if port else name
        raise unavailable(f'no endpoints available for service "{full}"')
    pod = random.choice(may)
    return pod_address(pod, _target(pod, wanted))


def _unready_too(service: Snapshot) -> bool:
    return bool(service.body["spec"].get("publishNotReadyAddresses"))


def _port(service: Snapshot, name: str, port: str) -> dict[str, Any] | None:
    ports = service.body["spec"].get("ports") or []
    if port.isdigit():
        found = next((item for item in ports if item["port"] == int(port)), None)
        if found is None:
            raise unavailable(f'no service port {port} found for service "{name}"')
        return found
    return next((item for item in ports if item.get("name", "") == port), None)


def _selected(store: Store, namespace: str, service: Snapshot) -> list[Snapshot]:
    selector = service.body["spec"].get("selector") or {}
    if not selector:
        return []
    return [
        pod
        for pod in store.list(POD, namespace)
        if selector.items() <= labels_of(pod.body).items()
        and pod.body.get("status", {}).get("podIP")
        and pod.body["status"].get("phase") not in ("Succeeded", "Failed")
    ]


def _target(pod: Snapshot, port: dict[str, Any]) -> int:
    target = port["targetPort"]
    if isinstance(target, int) or str(target).isdigit():
        return int(target)
    for container in pod.body["spec"]["containers"]:
        for item in container.get("ports") or ():
            if item.get("name") == target:
                return int(item["containerPort"])
    raise unavailable(f'no endpoints available for service: no port "{target}" in the pod')
