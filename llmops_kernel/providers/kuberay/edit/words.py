"""Words for changes of a RayCluster: readable names of the fields, and short values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from llmops_kernel.providers.kuberay.edit.spec_changes import ABSENT, Change

_LONGEST: Final = 60
_CALLED: Final = {
    "image": "image",
    "cpu": "CPUs",
    "memory": "memory",
    "ephemeral-storage": "disk",
    "sizeLimit": "volume size",
    "replicas": "replicas",
    "env": "environment",
    "envFrom": "environment",
    "nodeSelector": "node selector",
    "tolerations": "tolerations",
    "affinity": "affinity",
    "rayStartParams": "Ray's start parameters",
    "rayVersion": "Ray version",
    "volumes": "volumes",
    "volumeMounts": "mounts",
    "priorityClassName": "priority class",
    "lifecycle": "commands after start",
    "enableInTreeAutoscaling": "autoscaler",
    "autoscalerOptions": "autoscaler",
    "authOptions": "authentication",
    "serviceAccountName": "service account",
}


def short(change: Change) -> str:
    """Return a line such as `group h100: replicas 2 -> 4`."""
    if change.group is not None:
        where = f"group {change.group}"
        if len(change.path) == 2:
            return f"{where} is new" if change.old is ABSENT else f"{where} is removed"
        return f"{where}: {_field(change.path[2:])} {_step(change)}"
    if change.path[0] == "headGroupSpec":
        return f"head: {_field(change.path[1:])} {_step(change)}"
    return f"{_field(change.path)} {_step(change)}"


def described(fields: Sequence[Change]) -> str:
    """Return a phrase such as `the new image and environment`."""
    words = list(dict.fromkeys(_called(_inner(change)) for change in fields))
    shown = words[:3] + (["more"] if len(words) > 3 else [])
    return "the new " + (
        ", ".join(shown[:-1]) + f" and {shown[-1]}" if len(shown) > 1 else shown[0]
    )


def listed_pods(count: int, *, verb: str = "") -> str:
    """Return `2 running pods keep`, `1 running pod keeps`, or with `verb` only the pods."""
    pods = f"{count} running pod{'s' * (count != 1)}"
    return f"{pods} {verb}" if verb else f"{pods} keep{'s' * (count == 1)}"


def _inner(change: Change) -> tuple[str, ...]:
    """Return the path without the group's own name, which may be any word."""
    return change.path[2:] if change.group is not None else change.path


def _called(path: tuple[str, ...]) -> str:
    known = [_CALLED[part] for part in reversed(path) if part in _CALLED]
    return known[0] if known else path[-1]


def _field(path: tuple[str, ...]) -> str:
    """Return the path without the prefix of every pod: template.spec.containers.ray-worker."""
    wrapped = path[:3] == ("template", "spec", "containers") and len(path) > 4
    inner = path[4:] if wrapped else path[2:] if path[:2] == ("template", "spec") else path
    return ".".join(inner or path)


def _step(change: Change) -> str:
    if change.old is ABSENT:
        return f"is set to {_value(change.new)}"
    if change.new is ABSENT:
        return f"({_value(change.old)}) is removed"
    return f"{_value(change.old)} -> {_value(change.new)}"


def _value(value: Any) -> str:
    if isinstance(value, Mapping) and "value" in value:
        value = value["value"]
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = " ".join(str(text).split()) or '""'
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
