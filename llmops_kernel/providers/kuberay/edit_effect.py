"""Computes what applying a changed template would do to a running cluster, before it is done."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from llmops_kernel.providers.capabilities import EditEffect, EditKind
from llmops_kernel.providers.kuberay.resource import names
from llmops_kernel.providers.kuberay.resource.objects import text
from llmops_kernel.providers.kuberay.resource.status import (
    expected_pods,
    expected_pods_by_group,
    is_autoscaled,
    is_elastic,
    is_replaced_when_resized,
    worker_groups,
)
from llmops_kernel.providers.kuberay.spec_changes import ABSENT, Change, Conflicts, changes

Raw = Mapping[str, Any]
_HASHLESS: Final = ("replicas", "minReplicas", "maxReplicas", "scaleStrategy")
"""Fields of a worker group that `Recreate` does not compare."""
_LIVE: Final = (*_HASHLESS, "idleTimeoutSeconds", "priority")
_LIVE_OPTIONS: Final = ("idleTimeoutSeconds", "upscalingMode")
_SIZES: Final = (("replicas",), ("minReplicas",), ("maxReplicas",))
"""Fields that set the number of pods of a group."""
_IMMUTABLE: Final = (("managedBy",), ("gcsFaultToleranceOptions", "backend"))
_HEAD_SERVICE: Final = ("serviceType", "headService", "enableIngress", "ingressOptions")
_NONE: Final = "none"
_WAIT: Final = "wait until no job runs, then apply"
_SUSPEND: Final = (
    "stop the runs (each saves a checkpoint), suspend, apply, resume, then retry the runs"
)


def effect_of_edit(
    live: Raw,
    rendered: Raw,
    *,
    jobs: Sequence[str] | None,
    pods: Mapping[str, int] | None = None,
    base: Raw | None = None,
) -> EditEffect:
    """Compare `live`, the RayCluster on the API server, with `rendered`, the one to apply.

    `jobs` names what runs on it (`run lora-...`); None if that is unknown. `pods` counts the
    existing pods by group, the head's as `head`; None takes the requested replicas. `base` is what
    was rendered before; None takes all of a list of worker groups for ours.
    """
    edit = _Edit(live, rendered, jobs=jobs, pods=pods, base=base)
    return edit.effect()


@dataclass
class _Edit:
    live: Raw
    rendered: Raw
    jobs: Sequence[str] | None
    counts: dict[str, int]

    def __init__(
        self,
        live: Raw,
        rendered: Raw,
        *,
        jobs: Sequence[str] | None,
        pods: Mapping[str, int] | None,
        base: Raw | None,
    ) -> None:
        self.live, self.rendered, self.jobs = live, rendered, jobs
        self.counts = dict(_asked_for(live) if pods is None else pods)
        self.spec = changes(live, rendered, base=base)
        self.labels = _label_changes(live, rendered)
        self.conflicts = Conflicts(live, rendered, base=base)

    def effect(self) -> EditEffect:
        result = self._effect()
        if result.kind in (EditKind.NOTHING, EditKind.REPLACE):
            return result
        conflict = self.conflicts.sentence(self.spec, tuple(self.labels))
        return result.model_copy(update={"conflict": conflict})

    def _effect(self) -> EditEffect:
        if reason := self._new_name():
            return self._new_cluster_effect(EditKind.REPLACE, reason)
        if immutable := [change for change in self.spec if _is_immutable(change)]:
            fields = " and ".join(".".join(change.path) for change in immutable)
            return self._new_cluster_effect(EditKind.REPLACE, f"{fields} cannot be changed")
        if self.labels.get(names.QUEUE_PRIORITY_LABEL, ("", ""))[1] == _NONE:
            return self._new_cluster_effect(
                EditKind.REPLACE, "Kueue refuses to remove queue_priority"
            )
        if not self.spec and not self.labels:
            return EditEffect(
                kind=EditKind.NOTHING,
                sentence="nothing changes: the cluster matches the template",
            )
        if _is_asleep(self.live, self.counts):
            text = "nothing restarts: the cluster has no pods, new ones follow the template"
            return EditEffect(kind=EditKind.LIVE, sentence=text, lines=self._lines())
        if restart_reason := self._restart_reason():
            return self._new_cluster_effect(EditKind.RESTART, restart_reason)
        if stale := self._stale():
            return self._new_pods(stale)
        return self._live()

    def _new_name(self) -> str:
        for field in ("name", "namespace"):
            old = (self.live.get("metadata") or {}).get(field)
            new = (self.rendered.get("metadata") or {}).get(field)
            if old and new and old != new:
                return f"its {field} would be {new} instead of {old}"
        return ""

    def _restart_reason(self) -> str:
        queue = names.QUEUE_LABEL
        if queue in self.labels:
            return "Kueue accepts another queue only while the cluster is suspended"
        if self._gets_priority():
            return "Kueue accepts a first queue_priority only while the cluster is suspended"
        if self._changes_slices():
            return (
                "Kueue resizes the worker groups that an elastic cluster has; for another group it"
                " admits the whole cluster again, without pods meanwhile"
            )
        is_replaced = is_replaced_when_resized(self.live)
        if is_replaced and any(_is_counted_by_kueue(change) for change in self.spec):
            return "Kueue must admit the changed pods again and suspends the cluster for that"
        strategy = _strategy(self.rendered)
        if strategy != "Recreate":
            return ""
        if _strategy(self.live) != "Recreate":
            return "with upgradeStrategy Recreate KubeRay applies earlier edits as well"
        return (
            "upgradeStrategy Recreate replaces all pods" if any(map(_is_hashed, self.spec)) else ""
        )

    def _gets_priority(self) -> bool:
        old, _ = self.labels.get(names.QUEUE_PRIORITY_LABEL, ("", ""))
        return old == _NONE and (self.live.get("spec") or {}).get("suspend") is False

    def _changes_slices(self) -> bool:
        """Return whether a worker group comes or goes: Kueue's slices change counts only."""
        is_queued = names.QUEUE_LABEL in _labels(self.live) and is_elastic(dict(self.live))
        return is_queued and any(_comes(change) or _is_terminating(change) for change in self.spec)

    def _stale(self) -> list[Change]:
        """Return the changes that running pods do not get."""
        groups = {
            change.path[1] for change in self.spec if _comes(change) or _is_terminating(change)
        }
        return [c for c in self.spec if c.group not in groups and not _is_live(c)]

    def _new_pods(self, stale: Sequence[Change]) -> EditEffect:
        whole = [change for change in stale if change.group is None and not _of_head(change)]
        groups = [name for name in self.counts if name != "head"]
        touched = dict.fromkeys(c.group for c in stale if c.group) if not whole else groups
        head = whole or any(_of_head(change) for change in stale)
        parts = []
        if touched:
            fields = [c for c in stale if c.group] or list(whole)
            running = sum(self.counts.get(name, 0) for name in touched)
            parts.append(
                f"only new pods of {_groups(touched)} get {described(fields)};"
                f" {listed_pods(running)} the old"
            )
        if head:
            fields = [c for c in stale if c.group is None]
            parts.append(f"the head gets {described(fields)} only when it is recreated")
        return EditEffect(
            kind=EditKind.NEW_PODS,
            sentence="; ".join(parts),
            lines=self._lines(),
            stops=self._lost_pods(),
            safe_way=f"for all pods at once: {_SUSPEND}",
        )

    def _live(self) -> EditEffect:
        lost = self._lost_pods()
        first = [short(change) for change in self.spec[:2]] or self._label_lines()[:2]
        num_more = len(self.spec) - len(first)
        text = "; ".join(first) + (f" and {num_more} more" if num_more > 0 else "")
        ends = f"nothing restarts: {text}" if not lost else f"{' and '.join(lost)} end: {text}"
        left_behind = self._left_behind()
        return EditEffect(
            kind=EditKind.LIVE,
            sentence="; ".join([ends, *left_behind]),
            lines=self._lines(),
            stops=lost,
            safe_way=self._way_down(lost, left_behind),
        )

    def _way_down(self, lost: Sequence[str], left_behind: Sequence[str]) -> str:
        if left_behind:
            return "set `replicas: 0, max_replicas: 0` for the group and apply that first"
        return f"{_WAIT}: deleting a pod ends the work on it" if lost else ""

    def _left_behind(self) -> list[str]:
        """Report the pods of groups that leave the spec.

        KubeRay forgets such a group, and its pods keep running (kuberay#1739).
        """
        removed_groups = [
            c.path[1] for c in self.spec if _is_terminating(c) and self.counts.get(c.path[1])
        ]
        return [
            f"{listed_pods(self.counts[name], verb='of')} group {name} remain, because KubeRay"
            f" does not delete the pods of a removed group"
            for name in removed_groups
        ]

    def _lost_pods(self) -> tuple[str, ...]:
        lost_pods = []
        resized = [c.group for c in self.spec if c.group and c.path[2:] in _SIZES]
        expected = self._expected_pods()
        for group in dict.fromkeys(resized):
            surplus = self.counts.get(group, 0) - expected.get(group, 0)
            if surplus > 0:
                lost_pods.append(f"{surplus} pod{'s' * (surplus > 1)} of group {group}")
        return tuple(lost_pods)

    def _expected_pods(self) -> dict[str, int]:
        """Return the pods of each group after the apply, which keeps the autoscaler's replicas."""
        if not is_autoscaled(self.rendered):
            return expected_pods_by_group(self.rendered)
        now = {text(group, "groupName"): group for group in worker_groups(self.live)}
        return {
            name: expected_pods({**group, "replicas": now.get(name, group).get("replicas")})
            for group in worker_groups(self.rendered)
            if (name := text(group, "groupName"))
        }

    def _new_cluster_effect(self, kind: EditKind, reason: str) -> EditEffect:
        pods, jobs = self._running()
        lost = "the head" + (f", {pods}" if pods else "") + f" and {jobs}"
        verb = "deletes" if kind is EditKind.RESTART else "not possible on this cluster"
        if kind is EditKind.RESTART:
            sentence = f"{verb} {lost}: {reason}"
        else:
            sentence = f"{verb}: {reason}; a new cluster would end {lost}"
        safe = _SUSPEND if kind is EditKind.RESTART else (
            "stop the runs (each saves a checkpoint), `llmops delete`, `llmops up`, retry the runs"
        )  # fmt: skip
        idle = self.jobs is not None and not self.jobs
        return EditEffect(
            kind=kind,
            sentence=sentence,
            lines=self._lines(),
            stops=("the head", *([pods] if pods else []), *(self.jobs or ([] if idle else [jobs]))),
            safe_way=safe if not idle else "nothing runs now: apply loses Ray's list of ended jobs",
        )

    def _running(self) -> tuple[str, str]:
        workers = sum(count for name, count in self.counts.items() if name != "head")
        pods = f"{workers} worker pod{'s' * (workers != 1)}" if workers else ""
        if self.jobs is None:
            return pods, "whatever runs on it (its jobs are unknown)"
        if not self.jobs:
            return pods, "no running job"
        count = len(self.jobs)
        listing = ", ".join(self.jobs[:3]) + (", ..." if count > 3 else "")
        return pods, f"{count} running job{'s' * (count > 1)} ({listing})"

    def _lines(self) -> tuple[str, ...]:
        spec = (short(change) + self.conflicts.note(change) for change in self.spec)
        return (*spec, *self._label_lines())

    def _label_lines(self) -> list[str]:
        return [f"label {key}: {old} -> {new}" for key, (old, new) in self.labels.items()]


def _asked_for(live: Raw) -> dict[str, int]:
    spec = live.get("spec") or {}
    if spec.get("suspend"):
        return {}
    return {"head": 1, **expected_pods_by_group(live)}


def _is_asleep(live: Raw, counts: Mapping[str, int]) -> bool:
    return bool((live.get("spec") or {}).get("suspend")) and not any(counts.values())


def _labels(obj: Raw) -> dict[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}


def _label_changes(live: Raw, rendered: Raw) -> dict[str, tuple[str, str]]:
    """Return changed labels of the RayCluster, and what the template sets in annotations."""
    old, new = _labels(live), _labels(rendered)
    result = {
        key: (old.get(key, _NONE), value) for key, value in new.items() if old.get(key) != value
    }
    for key in (names.QUEUE_LABEL, names.QUEUE_PRIORITY_LABEL):
        if key in old and key not in new:
            result[key] = (old[key], _NONE)
    notes = {
        o: (x.get("metadata") or {}).get("annotations") or {}
        for o, x in (("old", live), ("new", rendered))
    }
    for key in (names.IDLE, names.ACCESS):
        before, after = notes["old"].get(key), notes["new"].get(key)
        if names.TEMPLATE in notes["old"] and before != after:
            result[key] = (before or _NONE, after or _NONE)
    return result


def _strategy(obj: Raw) -> str:
    return ((obj.get("spec") or {}).get("upgradeStrategy") or {}).get("type") or "None"


def _is_immutable(change: Change) -> bool:
    is_update = change.old is not ABSENT and change.new is not ABSENT
    return is_update and any(change.path == path for path in _IMMUTABLE)


def _comes(change: Change) -> bool:
    return change.group is not None and len(change.path) == 2 and change.old is ABSENT


def _is_terminating(change: Change) -> bool:
    return change.group is not None and len(change.path) == 2 and change.new is ABSENT


def _is_live(change: Change) -> bool:
    if change.path[0] == "upgradeStrategy":
        return True
    if change.path[0] == "autoscalerOptions":
        return change.path[1:2] != () and change.path[1] in _LIVE_OPTIONS
    if change.group is not None:
        return len(change.path) == 3 and change.path[2] in _LIVE
    return _of_head(change) and change.path[1:2] != () and change.path[1] in _HEAD_SERVICE


def _of_head(change: Change) -> bool:
    return change.path[0] in ("headGroupSpec", "enableInTreeAutoscaling", "autoscalerOptions")


def _is_hashed(change: Change) -> bool:
    if change.path[0] == "upgradeStrategy" or "tolerations" in change.path:
        return False
    return change.group is None or len(change.path) != 3 or change.path[2] not in _HASHLESS


def _is_counted_by_kueue(change: Change) -> bool:
    """Return whether Kueue's Workload holds it: the number of pods by group, and their requests."""
    if change.group is not None and len(change.path) <= 3:
        return len(change.path) == 2 or change.path[2] in ("replicas", "numOfHosts")
    return "template" in change.path


def _groups(touched: Mapping[Any, Any] | Sequence[Any]) -> str:
    names_of = list(touched)
    return f"group{'s' * (len(names_of) > 1)} {', '.join(map(str, names_of))}"


# --- Readable names of fields and short values, for changes of a RayCluster ---


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
        group = f"group {change.group}"
        if len(change.path) == 2:
            return f"{group} is new" if change.old is ABSENT else f"{group} is removed"
        return f"{group}: {_field(change.path[2:])} {_step(change)}"
    if change.path[0] == "headGroupSpec":
        return f"head: {_field(change.path[1:])} {_step(change)}"
    return f"{_field(change.path)} {_step(change)}"


def described(fields: Sequence[Change]) -> str:
    """Return a phrase such as `the new image and environment`."""
    labels = list(dict.fromkeys(_called(_inner(change)) for change in fields))
    listing = labels[:3] + (["more"] if len(labels) > 3 else [])
    return "the new " + (
        ", ".join(listing[:-1]) + f" and {listing[-1]}" if len(listing) > 1 else listing[0]
    )


def listed_pods(count: int, *, verb: str = "") -> str:
    """Return `2 running pods keep`, `1 running pod keeps`, or with `verb` only the pods."""
    pods = f"{count} running pod{'s' * (count != 1)}"
    return f"{pods} {verb}" if verb else f"{pods} keep{'s' * (count == 1)}"


def _inner(change: Change) -> tuple[str, ...]:
    """Return the path without the group's own name, which may be any word."""
    return change.path[2:] if change.group is not None else change.path


def _called(path: tuple[str, ...]) -> str:
    labels = [_CALLED[part] for part in reversed(path) if part in _CALLED]
    return labels[0] if labels else path[-1]


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
