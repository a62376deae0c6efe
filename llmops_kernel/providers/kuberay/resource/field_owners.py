"""Which other field managers own a RayCluster's fields, from its `managedFields`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from llmops_kernel.providers.kuberay.resource import names

Raw = Mapping[str, Any]
_KUEUE: Final = "kueue"
"""How the name of Kueue's field manager begins."""
_LAST_APPLIED: Final = "f:kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which `kubectl apply` without server-side apply remembers a manifest."""


def appliers(live: Raw) -> tuple[str, ...]:
    """Return the managers that apply a manifest with a spec and may do so again.

    A GitOps manager or `kubectl apply` in a pipeline, unlike `kubectl edit` or an operator.
    """
    found = (
        entry["manager"]
        for entry in _others(live)
        if "f:spec" in _fields(entry) and _applies(entry)
    )
    return tuple(dict.fromkeys(found))


def owners(live: Raw, path: Sequence[str]) -> tuple[str, ...]:
    """Return the other managers of a field, or of the list that is replaced together with it.

    Kueue is left out: what it writes is sent back, and taking its lists over loses nothing.
    """
    found = (entry["manager"] for entry in _others(live) if _covers(_fields(entry), path))
    return tuple(dict.fromkeys(manager for manager in found if not manager.startswith(_KUEUE)))


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
        found = json.loads(text)
    except ValueError:
        return ()
    return list(found.values()) if isinstance(found, dict) else ()
