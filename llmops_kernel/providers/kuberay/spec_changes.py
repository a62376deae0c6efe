"""Changes that an apply would make in a RayCluster: the live object against a new rendering."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from llmops_kernel.config.models.quantity import amount
from llmops_kernel.providers.kuberay.resource import names
from llmops_kernel.providers.kuberay.resource.objects import appliers, owners
from llmops_kernel.providers.kuberay.resource.status import is_autoscaled

Path = tuple[str, ...]
ABSENT: Final = object()
UNKNOWN: Final = object()
KEYS: Final = {
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
ATOMIC: Final = frozenset({"workerGroupSpecs", "tolerations", "envFrom"})
"""Lists that an apply replaces as a whole, so that what others wrote into their items is lost."""
SETS: Final = frozenset({"tolerations", "envFrom", "schedulingGates", "topologySpreadConstraints"})
"""Lists without a name field to which Kueue and admission webhooks add items."""
_DEFAULTS: Final = {
    "replicas": 0, "minReplicas": 0, "maxReplicas": 2147483647, "numOfHosts": 1, "priority": 0,
    "protocol": "TCP", "optional": False, "readOnly": False,
}  # fmt: skip
"""Values that the CRD writes into fields that were left out."""
_QUANTITIES: Final = frozenset({"requests", "limits", "emptyDir"})
NOT_OURS: Final = frozenset({"suspend", "scaleStrategy"})
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
        """Return the worker group that the change is about."""
        inside = len(self.path) > 1 and self.path[0] == "workerGroupSpecs"
        return self.path[1] if inside else None

    @property
    def field(self) -> str:
        """Return the path of the field within the group or the head."""
        return ".".join(self.path[2:] if self.group else self.path)


def changes(
    live: Mapping[str, Any], rendered: Mapping[str, Any], *, base: Mapping[str, Any] | None = None
) -> list[Change]:
    """Return the changes in the order of the rendered spec.

    Fields that others set and we never wrote are ignored. In lists that an apply replaces as a
    whole, `managedFields` does not tell whose they are; `base` does: what we rendered when the
    cluster was made or changed last. Without it all of such a list counts as ours.
    """
    old = UNKNOWN if base is None else base.get("spec") or {}
    sides = _Sides(owned=_owned(live), base=old)
    candidates = _below(live.get("spec") or {}, rendered.get("spec") or {}, path=(), sides=sides)
    return [change for change in candidates if not _is_carried(change, rendered)]


def _is_carried(change: Change, rendered: Mapping[str, Any]) -> bool:
    """Return whether the live value is kept: the autoscaler owns a live cluster's replicas."""
    autoscaled = bool((rendered.get("spec") or {}).get("enableInTreeAutoscaling"))
    replicas = change.group is not None and change.path[2:] == ("replicas",)
    return autoscaled and replicas and change.old is not ABSENT


@dataclass(frozen=True)
class _Sides:
    """Owner of a part of the live object."""

    owned: Any
    """Our part of `managedFields` there."""
    base: Any
    """Our last rendering of it; UNKNOWN, or ABSENT if nothing."""
    whole: bool = False
    """It is in a list that an apply replaces as a whole."""

    def below(self, key: str) -> _Sides:
        owned = self.owned.get(f"f:{key}") if isinstance(self.owned, Mapping) else None
        return _Sides(owned, self._base(self.base, key), self.whole)

    def item(self, by: str, name: str) -> _Sides:
        base = self.base if self.base is UNKNOWN else self._base(_by_name(self.base, by), name)
        return _Sides(_item_owned(self.owned, by, name), base, self.whole)

    @staticmethod
    def _base(base: Any, key: str) -> Any:
        if base is UNKNOWN:
            return UNKNOWN
        return base.get(key, ABSENT) if isinstance(base, Mapping) else ABSENT

    @property
    def is_ours(self) -> bool:
        """Return whether it goes when we leave it out."""
        return self.owned is not None or (self.whole and self.base is not ABSENT)


def _below(
    live: Mapping[str, Any], new: Mapping[str, Any], *, path: Path, sides: _Sides
) -> Iterator[Change]:
    for key in [*new, *(key for key in live if key not in new)]:
        if key in NOT_OURS and key not in new:
            continue
        current, rendered = live.get(key, ABSENT), new.get(key, ABSENT)
        inner = sides.below(key)
        if rendered is not ABSENT:
            yield from _field_changes((*path, key), current, rendered, sides=inner)
        elif inner.is_ours and current != _DEFAULTS.get(key, ABSENT) and current != {}:
            yield Change((*path, key), current, ABSENT)


def _field_changes(path: Path, current: Any, rendered: Any, *, sides: _Sides) -> Iterator[Change]:
    key = path[-1]
    if isinstance(rendered, Mapping) and isinstance(current, Mapping):
        yield from _below(current, rendered, path=path, sides=sides)
    elif key in KEYS and isinstance(rendered, Sequence) and isinstance(current, Sequence):
        whole = sides.whole or key in ATOMIC
        yield from _items(path, current, rendered, sides=replace(sides, whole=whole))
    elif not _is_same(path, current, with_others(key, current, rendered, sides.base)):
        yield Change(path, current, rendered)


def _items(
    path: Path, current: Sequence[Any], rendered: Sequence[Any], *, sides: _Sides
) -> Iterator[Change]:
    by = KEYS[path[-1]]
    old, new = _by_name(current, by), _by_name(rendered, by)
    for name in [*new, *(name for name in old if name not in new)]:
        inner = sides.item(by, name)
        if name not in new:
            if inner.is_ours:
                yield Change((*path, name), old[name], ABSENT)
        elif name not in old:
            yield Change((*path, name), ABSENT, new[name])
        else:
            yield from _below(old[name], new[name], path=(*path, name), sides=inner)


def _by_name(items: Any, by: str) -> dict[str, Any]:
    if not isinstance(items, list | tuple):
        return {}
    return {str(item.get(by)): item for item in items if isinstance(item, Mapping)}


def with_others(key: str, current: Any, rendered: Any, base: Any) -> Any:
    """Return a list of ours together with the items that others have added to it.

    Their order is that of the live list if it has the same items: an order has no meaning here.
    """
    if key not in SETS or base is UNKNOWN or not isinstance(current, list):
        return rendered
    applied = base if isinstance(base, list) else []
    merged = [
        *rendered,
        *(item for item in current if item not in applied and item not in rendered),
    ]
    return (
        current
        if len(merged) == len(current) and all(item in current for item in merged)
        else merged
    )


def _is_same(path: Path, current: Any, rendered: Any) -> bool:
    if current is ABSENT:
        return bool(rendered == _DEFAULTS.get(path[-1], ABSENT)) or rendered in ({}, [])
    if current == rendered:
        return True
    if _QUANTITIES.isdisjoint(path):
        return False
    try:
        return amount(current) == amount(rendered)
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


def _union(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(first)
    for name, below in second.items():
        merged[name] = _union(merged.get(name) or {}, below or {})
    return merged


def _item_owned(owned: Any, by: str, name: str) -> Any:
    for key, below in (owned or {}).items():
        if key.startswith("k:") and str(_json(key[2:]).get(by)) == name:
            return below
    return None


def _json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


# --- Conflicts with other field managers ---
# Says which other field managers own what an apply would change, before it is refused for that.


Raw = Mapping[str, Any]
_GROUPS: Final = "workerGroupSpecs"
_META: Final = (("metadata", "labels"), ("metadata", "annotations"))


class Conflicts:
    """The owners of fields of `live`; `base` is what we rendered when it was last made."""

    def __init__(self, live: Raw, rendered: Raw, *, base: Raw | None) -> None:
        self._live, self._rendered = live, rendered
        self._appliers = appliers(live)
        self._is_lent = base is not None and is_autoscaled(base) and not list_changes(live, base)

    def note(self, change: Change) -> str:
        """Return ` (owned by argocd-controller)`, or nothing."""
        managers = self._owners(change)
        return f" (owned by {' and '.join(managers)})" if managers else ""

    def sentence(self, spec: Sequence[Change], labels: Sequence[str]) -> str:
        """Return what the owners mean for an apply of these changes; empty if there are none."""
        managers_found = [owner for change in spec for owner in self._owners(change)]
        managers_found += self._of_metadata(labels)
        managers = tuple(dict.fromkeys(managers_found))
        if not managers:
            return ""
        reapplying = [manager for manager in managers if manager in self._appliers]
        return (
            f"{' and '.join(managers)} own{'s' * (len(managers) == 1)} fields that this changes:"
            " `llmops cluster apply` refuses without `--force` (`force=True`)"
            + (f"; {_reapply_note(reapplying)}" if reapplying else "")
        )

    def _owners(self, change: Change) -> tuple[str, ...]:
        managers = owners(self._live, ("spec", *change.path))
        if self._is_lent and is_of_list(change):
            # The autoscaler owns the list for its replicas, which are kept.
            return tuple(owner for owner in managers if owner in self._appliers)
        return managers

    def _of_metadata(self, labels: Sequence[str]) -> list[str]:
        keys = {*labels, names.TEMPLATE}
        return [
            owner
            for path in _META
            for key, value in _part(self._rendered, path).items()
            if key in keys and _part(self._live, path).get(key) != value
            for owner in owners(self._live, (*path, key))
        ]


def _reapply_note(managers: Sequence[str]) -> str:
    """Return that GitOps managers and pipelines set their values again."""
    verbs = "applies its manifest" if len(managers) == 1 else "apply their manifests"
    return f"{' and '.join(managers)} {verbs} again and may undo it: change it there as well"


def list_changes(live: Raw, base: Raw) -> list[Change]:
    """Return what others have changed of ours in lists that are replaced as a whole."""
    return [change for change in changes(live, base, base=base) if is_of_list(change)]


def is_of_list(change: Change) -> bool:
    return change.path[0] == _GROUPS or change.path[-1] in SETS


def _part(obj: Raw, path: Sequence[str]) -> Raw:
    for key in path:
        obj = obj.get(key) or {}
    return obj
