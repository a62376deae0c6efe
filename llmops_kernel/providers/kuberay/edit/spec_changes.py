"""What an apply would change in a RayCluster: compares the live object with a new rendering."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from llmops_kernel.config.models.quantity import amount
from llmops_kernel.providers.kuberay.resource import names

Path = tuple[str, ...]
ABSENT: Final = object()
_KEYS: Final = {
    "workerGroupSpecs": "groupName",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
}
"""Lists of objects that are compared by a name field; other lists are compared as a whole."""
_ATOMIC: Final = frozenset({"workerGroupSpecs", "tolerations", "envFrom"})
"""Lists that an apply replaces as a whole, so that what others wrote into their items is lost."""
_DEFAULTS: Final = {
    "replicas": 0, "minReplicas": 0, "maxReplicas": 2147483647, "numOfHosts": 1, "priority": 0,
    "protocol": "TCP", "optional": False, "readOnly": False,
}  # fmt: skip
"""Values that the CRD writes into fields that were left out."""
_QUANTITIES: Final = frozenset({"requests", "limits", "emptyDir"})
_NOT_OURS: Final = frozenset({"suspend", "scaleStrategy"})
"""Fields that actions and the autoscaler set; no template has them."""


@dataclass(frozen=True)
class Change:
    """A change of one field; ABSENT stands for the missing side of one that is added or removed."""

    path: Path
    """Path below `spec`; items of a list by their name."""
    old: Any
    new: Any

    @property
    def group(self) -> str | None:
        """The worker group that the change is about."""
        inside = len(self.path) > 1 and self.path[0] == "workerGroupSpecs"
        return self.path[1] if inside else None

    @property
    def field(self) -> str:
        """The path of the field within the group or the head."""
        return ".".join(self.path[2:] if self.group else self.path)


def changes(live: Mapping[str, Any], rendered: Mapping[str, Any]) -> list[Change]:
    """Return the changes in the order of the rendered spec.

    Fields that others set and we never wrote are ignored.
    """
    found = _below(
        live.get("spec") or {}, rendered.get("spec") or {}, path=(), owned=_owned(live), whole=False
    )
    return [change for change in found if not _is_carried(change, rendered)]


def _is_carried(change: Change, rendered: Mapping[str, Any]) -> bool:
    """Return whether the live value is kept: the autoscaler owns a live cluster's replicas."""
    autoscaled = bool((rendered.get("spec") or {}).get("enableInTreeAutoscaling"))
    replicas = change.group is not None and change.path[2:] == ("replicas",)
    return autoscaled and replicas and change.old is not ABSENT


def _below(
    live: Mapping[str, Any], new: Mapping[str, Any], *, path: Path, owned: Any, whole: bool
) -> Iterator[Change]:
    for key in [*new, *(key for key in live if key not in new)]:
        if key in _NOT_OURS and key not in new:
            continue
        had, wanted = live.get(key, ABSENT), new.get(key, ABSENT)
        mine = owned.get(f"f:{key}") if isinstance(owned, Mapping) else None
        if wanted is ABSENT:
            if (whole or mine is not None) and had != _DEFAULTS.get(key, ABSENT) and had != {}:
                yield from _gone((*path, key), had)
            continue
        yield from _one((*path, key), had, wanted, owned=mine, whole=whole)


def _gone(path: Path, had: Any) -> Iterator[Change]:
    yield Change(path, had, ABSENT)


def _one(path: Path, had: Any, wanted: Any, *, owned: Any, whole: bool) -> Iterator[Change]:
    key = path[-1]
    if isinstance(wanted, Mapping) and isinstance(had, Mapping):
        yield from _below(had, wanted, path=path, owned=owned, whole=whole)
    elif key in _KEYS and isinstance(wanted, Sequence) and isinstance(had, Sequence):
        yield from _items(path, had, wanted, owned=owned, whole=whole or key in _ATOMIC)
    elif not _same(path, had, wanted):
        yield Change(path, had, wanted)


def _items(
    path: Path, had: Sequence[Any], wanted: Sequence[Any], *, owned: Any, whole: bool
) -> Iterator[Change]:
    by = _KEYS[path[-1]]
    old = {str(item.get(by)): item for item in had if isinstance(item, Mapping)}
    new = {str(item.get(by)): item for item in wanted if isinstance(item, Mapping)}
    for name in [*new, *(name for name in old if name not in new)]:
        mine = _item_owned(owned, by, name)
        if name not in new:
            if whole or mine is not None:
                yield Change((*path, name), old[name], ABSENT)
        elif name not in old:
            yield Change((*path, name), ABSENT, new[name])
        else:
            yield from _below(old[name], new[name], path=(*path, name), owned=mine, whole=whole)


def _same(path: Path, had: Any, wanted: Any) -> bool:
    if had is ABSENT:
        return bool(wanted == _DEFAULTS.get(path[-1], ABSENT)) or wanted in ({}, [])
    if had == wanted:
        return True
    if _QUANTITIES.isdisjoint(path):
        return False
    try:
        return amount(had) == amount(wanted)
    except ValueError:
        return False


def _owned(live: Mapping[str, Any]) -> dict[str, Any]:
    """Return our part of `managedFields` below `spec`, which an apply removes if left out."""
    fields: dict[str, Any] = {}
    for entry in (live.get("metadata") or {}).get("managedFields") or []:
        # What we created or patched becomes part of the apply, whatever the request was.
        if entry.get("manager") == names.FIELD_MANAGER and not entry.get("subresource"):
            fields = _union(fields, (entry.get("fieldsV1") or {}).get("f:spec") or {})
    return fields


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(one)
    for name, below in other.items():
        merged[name] = _union(merged.get(name) or {}, below or {})
    return merged


def _item_owned(owned: Any, by: str, name: str) -> Any:
    for key, below in (owned or {}).items():
        if key.startswith("k:") and str(_json(key[2:]).get(by)) == name:
            return below
    return None


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
