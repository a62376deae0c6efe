"""Reads Kubernetes objects defensively: any field may be missing, null or of another type."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from llmops_kernel.config.models.quantity import amount
from llmops_kernel.providers.kuberay.resource import names

Obj = Mapping[str, Any]
_MAX_DIGITS = 20
_INT64 = 2**63


def dig(obj: Any, *path: str) -> Any:
    """Return the value at that path; None if a step of it is missing."""
    for step in path:
        # `dict` first: asking an abstract class takes ten times as long.
        if not isinstance(obj, dict | Mapping):
            return None
        obj = obj.get(step)
    return obj


def text(obj: Any, *path: str) -> str:
    value = dig(obj, *path)
    return value if isinstance(value, str) else ""


def fields(obj: Any, *path: str) -> dict[str, Any]:
    """Return an object; empty if there is none. Keys that are not strings are omitted."""
    mapping = dig(obj, *path)
    if not isinstance(mapping, dict | Mapping):
        return {}
    return {name: value for name, value in mapping.items() if isinstance(name, str)}


def labels(obj: Any, *path: str) -> dict[str, str]:
    return {name: value for name, value in fields(obj, *path).items() if isinstance(value, str)}


def objects(obj: Any, *path: str) -> list[Obj]:
    """Return a list of objects; other items are omitted."""
    value = dig(obj, *path)
    if not isinstance(value, list | tuple):
        return []
    return [item for item in value if isinstance(item, dict | Mapping)]


def texts(obj: Any, *path: str) -> list[str]:
    value = dig(obj, *path)
    return [t for t in value if isinstance(t, str)] if isinstance(value, list | tuple) else []


def whole(obj: Any, *path: str) -> int | None:
    """Return an integer within the range of Kubernetes."""
    value = dig(obj, *path)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if -_INT64 <= value < _INT64 else None


def quantity(value: Any) -> Decimal | None:
    """Return a quantity; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = amount(value)
    except (ValueError, ArithmeticError):
        return None
    return number if number.is_finite() and abs(number.adjusted()) < _MAX_DIGITS else None


def quantities(obj: Any, *path: str) -> dict[str, Decimal]:
    read = {name: quantity(value) for name, value in fields(obj, *path).items()}
    return {name: value for name, value in read.items() if value is not None}


def time_s(value: Any) -> float | None:
    """Return the Unix seconds of an RFC 3339 time."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def name_of(obj: Any) -> str:
    return text(obj, "metadata", "name")


def created_s(obj: Any) -> float | None:
    return time_s(dig(obj, "metadata", "creationTimestamp"))


def changed_s(obj: Any) -> float | None:
    """Return when the object was created or last changed; changes of its status do not count."""
    times = (
        time_s(item.get("time"))
        for item in objects(obj, "metadata", "managedFields")
        if item.get("subresource") != "status"
    )
    return max((at_s for at_s in (*times, created_s(obj)) if at_s is not None), default=None)


def condition(obj: Any, kind: str) -> Obj:
    """Return the condition of that type in `status`; empty if there is none."""
    conditions = objects(obj, "status", "conditions")
    return next((item for item in conditions if item.get("type") == kind), {})


def event_time_s(event: Obj) -> float:
    """Return when the event was last seen; 0 if it does not say."""
    times = (
        dig(event, "series", "lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        dig(event, "metadata", "creationTimestamp"),
    )
    return next((at_s for value in times if (at_s := time_s(value)) is not None), 0.0)


def event_text(event: Obj) -> str:
    """Return the message, in either spelling of the API."""
    return text(event, "message") or text(event, "note")


def event_about(event: Obj) -> Obj:
    return fields(event, "involvedObject") or fields(event, "regarding")


def shown(name: str, value: Decimal) -> str:
    """Return an amount of a resource in readable form: `8 nvidia.com/gpu`, `600 GiB memory`."""
    if name == "memory" or name.endswith("storage"):
        return f"{_bytes(value)} {name}"
    return f"{plain(value)} {name}"


def short(name: str, value: Decimal) -> str:
    """Return the amount without the resource's name."""
    return _bytes(value) if name == "memory" or name.endswith("storage") else plain(value)


def plain(value: Decimal) -> str:
    return f"{round(value, 3).normalize():f}"


def _bytes(value: Decimal) -> str:
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB")):
        if abs(value) >= 1024**power:
            return f"{plain(round(value / 1024**power, 1))} {unit}"
    return f"{plain(value)} bytes"


def one_line(message: str, *, limit: int = 300) -> str:
    line = " ".join(message.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


# --- Other field managers of a RayCluster, from its `managedFields` ---


Raw = Mapping[str, Any]
_KUEUE: Final = "kueue"
"""How the name of Kueue's field manager begins."""
_LAST_APPLIED: Final = "f:kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which `kubectl apply` without server-side apply remembers a manifest."""


def appliers(live: Raw) -> tuple[str, ...]:
    """Return the managers that apply a manifest with a spec and may do so again.

    A GitOps manager or `kubectl apply` in a pipeline, unlike `kubectl edit` or an operator.
    """
    managers = (
        entry["manager"]
        for entry in _others(live)
        if "f:spec" in _fields(entry) and _applies(entry)
    )
    return tuple(dict.fromkeys(managers))


def owners(live: Raw, path: Sequence[str]) -> tuple[str, ...]:
    """Return the other managers of a field, or of the list that is replaced together with it.

    Kueue is left out: what it writes is sent back, and taking its lists over loses nothing.
    """
    managers = (entry["manager"] for entry in _others(live) if _covers(_fields(entry), path))
    return tuple(dict.fromkeys(manager for manager in managers if not manager.startswith(_KUEUE)))


def _others(live: Raw) -> Iterator[Raw]:
    for entry in (live.get("metadata") or {}).get("managedFields") or []:
        manager = entry.get("manager")
        if manager and manager != names.FIELD_MANAGER and not entry.get("subresource"):
            yield entry


def _fields(entry: Raw) -> Raw:
    return entry.get("fieldsV1") or {}


def _applies(entry: Raw) -> bool:
    if entry.get("operation") == "Apply":
        return True
    annotations = (_fields(entry).get("f:metadata") or {}).get("f:annotations") or {}
    return _LAST_APPLIED in annotations


def _covers(fields: Raw, path: Sequence[str]) -> bool:
    """Return whether `path` is in a set of fields; one without parts has all below it."""
    node: Any = fields
    for part in path:
        node = node.get(f"f:{part}", _item(node, part))
        if node is None:
            return False
        if not node:
            return True
    return True


def _item(node: Raw, name: str) -> Raw | None:
    """Return the part of the list item of that name, whatever its name field is called."""
    for key, below in node.items():
        if key.startswith("k:") and name in map(str, _values(key[2:])):
            return below or {}
    return None


def _values(text: str) -> Sequence[Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return ()
    return list(value.values()) if isinstance(value, dict) else ()
