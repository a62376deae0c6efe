"""What a real server adds to built-in kinds, and what it refuses in them."""

from __future__ import annotations

import base64
import re
from typing import Any

from tests.k8s.standin.objects.errors import FieldError, bad_request, forbidden, required
from tests.k8s.standin.objects.kinds import PRIORITY_CLASS, Kind
from tests.k8s.standin.objects.store import Store

Body = dict[str, Any]
DATA_LIMIT = 1024 * 1024


def prepare(kind: Kind, body: Body, store: Store, *, is_new: bool) -> list[FieldError]:
    """Defaults into `body` (a copy that may be changed); what is wrong with it."""
    match kind.kind:
        case "Secret":
            return _secret(body)
        case "ConfigMap":
            _texts(kind, body, "data")
            return _too_big(body)
    if not is_new:
        return []
    match kind.kind:
        case "Namespace":
            _namespace(body)
        case "Pod":
            return _pod(body, store)
        case "Service":
            return _service(body, store)
        case "PersistentVolumeClaim":
            body["spec"] = {"volumeMode": "Filesystem", **body.get("spec", {})}
            body["status"] = {"phase": "Pending"}
        case "Job":
            spec = body.get("spec", {})
            more = {"parallelism": 1, "completions": 1, "backoffLimit": 6, "suspend": False}
            body["spec"] = more | spec
        case "Node":
            body.setdefault("spec", {})
    return []


def keeps_status(kind: Kind) -> bool:
    """Kubelets create their node together with its status."""
    return kind.kind == "Node"


def _namespace(body: Body) -> None:
    meta = body["metadata"]
    meta["labels"] = {**meta.get("labels", {}), "kubernetes.io/metadata.name": meta["name"]}
    body["spec"] = {"finalizers": ["kubernetes"]}
    body["status"] = {"phase": "Active"}


def _texts(kind: Kind, body: Body, key: str) -> None:
    for value in (body.get(key) or {}).values():
        if not isinstance(value, str):
            raise bad_request(
                f'{kind.kind} in version "v1" cannot be handled as a {kind.kind}: json: cannot '
                f"unmarshal into Go struct field {kind.kind}.{key} of type string"
            )


def _secret(body: Body) -> list[FieldError]:
    data = dict(body.get("data") or {})
    for value in data.values():
        if (position := _illegal(value)) is not None:
            raise bad_request(
                'Secret in version "v1" cannot be handled as a Secret: illegal base64 data at '
                f"input byte {position}"
            )
    for key, text in (body.pop("stringData", None) or {}).items():
        data[key] = base64.b64encode(text.encode()).decode()
    if data:
        body["data"] = data
    body.setdefault("type", "Opaque")
    return _too_big(body)


def _illegal(value: str) -> int | None:
    found = re.search(r"[^A-Za-z0-9+/=\n]", value)
    if found:
        return found.start()
    try:
        base64.b64decode(value, validate=False)
    except ValueError:
        return len(value)
    return None


def _too_big(body: Body) -> list[FieldError]:
    size = sum(len(k) + len(v) for k, v in (body.get("data") or {}).items())
    if size <= DATA_LIMIT:
        return []
    text = f"Too long: may not be more than {DATA_LIMIT} bytes"
    return [FieldError("data", "FieldValueTooLong", text)]


_TOLERATIONS = [
    {
        "key": f"node.kubernetes.io/{state}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for state in ("not-ready", "unreachable")
]


def _pod(body: Body, store: Store) -> list[FieldError]:
    spec = body.get("spec") or {}
    if not spec.get("containers"):
        return [required("spec.containers")]
    name = body["metadata"]["name"]
    priority, preemption = _priority(name, spec, store)
    defaults = {
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    spec = defaults | spec | {"priority": priority, "preemptionPolicy": preemption}
    if account := spec.get("serviceAccountName"):
        spec["serviceAccount"] = account  # The deprecated name of the same.
    for part in ("containers", "initContainers"):
        if part in spec:
            spec[part] = [_container(item) for item in spec[part]]
    known = {item.get("key") for item in spec.get("tolerations", [])}
    more = [item for item in _TOLERATIONS if item["key"] not in known]
    spec["tolerations"] = [*spec.get("tolerations", []), *more]
    body["spec"] = spec
    body["status"] = {"phase": "Pending", "qosClass": _qos(spec)}
    return [
        required(f"spec.containers[{index}].image")
        for index, item in enumerate(spec["containers"])
        if not item.get("image")
    ]


def _priority(name: str, spec: Body, store: Store) -> tuple[int, str]:
    wanted = spec.get("priorityClassName")
    if not wanted:
        return 0, "PreemptLowerPriority"
    found = store.get(PRIORITY_CLASS, "", wanted)
    if found is None:
        detail = f"no PriorityClass with name {wanted} was found"
        raise forbidden("", "pods", name, detail)
    policy = found.body.get("preemptionPolicy", "PreemptLowerPriority")
    return found.body.get("value", 0), policy


def _container(container: Body) -> Body:
    image = container.get("image", "")
    latest = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    resources = container.get("resources") or {}
    if limits := resources.get("limits"):
        resources = {**resources, "requests": {**limits, **resources.get("requests", {})}}
    return {
        "imagePullPolicy": "Always" if latest else "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        **container,
        "resources": _as_text(resources),
        **{key: _probe(container[key]) for key in _PROBES if container.get(key)},
        **({"env": [_variable(item) for item in container["env"]]} if "env" in container else {}),
        **({"ports": _ports(container["ports"])} if container.get("ports") else {}),
    }


_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}


def _probe(probe: Body) -> Body:
    asked = probe.get("httpGet")
    return {**_PROBE, **probe, **({"httpGet": {"scheme": "HTTP", **asked}} if asked else {})}


def _variable(variable: Body) -> Body:
    source = variable.get("valueFrom") or {}
    if "fieldRef" not in source:
        return variable
    return {**variable, "valueFrom": {"fieldRef": {"apiVersion": "v1", **source["fieldRef"]}}}


def _ports(ports: list[Body]) -> list[Body]:
    return [{**port, "protocol": port.get("protocol", "TCP")} for port in ports]


def _as_text(resources: Body) -> Body:
    """Quantities in canonical form: a real server answers with strings."""
    return {
        part: {key: str(value) for key, value in amounts.items()}
        if isinstance(amounts, dict)
        else amounts
        for part, amounts in resources.items()
    }


def _qos(spec: Body) -> str:
    resources = [item.get("resources", {}) for item in spec["containers"]]
    if not any(r.get("requests") or r.get("limits") for r in resources):
        return "BestEffort"
    for r in resources:
        limits, requests = r.get("limits", {}), r.get("requests", {})
        for key in ("cpu", "memory"):
            if key not in limits or limits[key] != requests.get(key):
                return "Burstable"
    return "Guaranteed"


def _service(body: Body, store: Store) -> list[FieldError]:
    spec = body.get("spec") or {}
    if not spec.get("ports") and spec.get("clusterIP") != "None":
        return [required("spec.ports")]
    address = spec.get("clusterIP") or f"10.96.{store.version // 250 % 250}.{store.version % 250}"
    ports = [
        {
            **({"name": port["name"]} if "name" in port else {}),
            "protocol": "TCP",
            **{key: value for key, value in port.items() if key != "name"},
            "targetPort": port.get("targetPort", port.get("port")),
        }
        for port in spec.get("ports", [])
    ]
    body["spec"] = {
        "type": "ClusterIP",
        "clusterIP": address,
        "clusterIPs": [address],
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "sessionAffinity": "None",
        **spec,
        **({"ports": ports} if ports else {}),
    }
    body["status"] = {"loadBalancer": {}}
    return []
