"""Merges raw Kubernetes YAML into the rendered manifest: the templates' escape hatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "workerGroupSpecs": "groupName",
}
"""Lists that Kubernetes merges item by item, and by which field; others are replaced as a whole."""


def overlaid(rendered: Mapping[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `raw` over `rendered`; a `null` removes a field, as in a JSON merge patch."""
    result = dict(rendered)
    for key, value in raw.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value, key)
    return result


def _merged(old: Any, new: Any, key: str) -> Any:
    if isinstance(new, Mapping):
        return overlaid(old if isinstance(old, Mapping) else {}, new)
    if isinstance(new, list | tuple):
        by = _KEYS.get(key)
        if by is None or not isinstance(old, list):
            return [_merged(None, item, "") for item in new]
        return _merged_list(old, new, by)
    return new


def _merged_list(old: list[Any], new: list[Any] | tuple[Any, ...], by: str) -> list[Any]:
    """Merge by name. Known items keep their position: Ray's container stays the first."""
    result = list(old)
    scopes = {item.get(by): index for index, item in enumerate(old) if isinstance(item, Mapping)}
    for item in new:
        name = item.get(by) if isinstance(item, Mapping) else None
        if name is not None and name in scopes:
            result[scopes[name]] = overlaid(result[scopes[name]], item)
        else:
            result.append(_merged(None, item, ""))
    return result
