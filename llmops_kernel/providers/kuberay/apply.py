"""Applies a changed template to a cluster by server-side apply, and says what that would do."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.errors import ClusterStateError, LLMOpsError
from llmops_kernel.providers.capabilities import EditEffect, EditKind, require_applicable
from llmops_kernel.providers.dashboard import described_job, is_active
from llmops_kernel.providers.kuberay.api import features, rights
from llmops_kernel.providers.kuberay.api.client import FIELD_MANAGER, KubeError
from llmops_kernel.providers.kuberay.edit_effect import effect_of_edit
from llmops_kernel.providers.kuberay.life.companions import ensure_owned, refuse_foreign
from llmops_kernel.providers.kuberay.life.guard import who
from llmops_kernel.providers.kuberay.life.lifecycle import change
from llmops_kernel.providers.kuberay.render.manifest import Manifest, render
from llmops_kernel.providers.kuberay.resource import names, own_clusters, status
from llmops_kernel.providers.kuberay.resource.objects import appliers, labels, one_line, text
from llmops_kernel.providers.kuberay.resource.status import worker_groups
from llmops_kernel.providers.kuberay.spec_changes import (
    ABSENT,
    ATOMIC,
    KEYS,
    NOT_OURS,
    SETS,
    changes,
    list_changes,
    with_others,
)
from llmops_kernel.providers.kuberay.state.discovery import LocatedCluster
from llmops_kernel.providers.kuberay.state.info import pods_of_cluster
from llmops_kernel.providers.kuberay.state.ray_probe import invalidate_ray, jobs_of

Raw = dict[str, Any]
_GROUPS: Final = ".spec.workerGroupSpecs"
_KUEUE: Final = '"kueue'
"""How the name of Kueue's field manager begins in a conflict."""


def is_changed(located: LocatedCluster, template: KubeRayTemplate) -> bool:
    """Return whether the cluster was made from another template; always True if others made it."""
    return status.template_of(located.raycluster) != template


def spec_differs(located: LocatedCluster, template: KubeRayTemplate) -> bool:
    """Return whether the template specifies something else than replicas. Raises KubeError."""
    live = located.kube.get(located.path)  # The cache keeps no managedFields: the field owners.
    spec_changes = changes(live, _rendered(located, template).raycluster, base=_base(located))
    # A cluster is scaled while it is used.
    return any(change.group is None or change.path[2:] != ("replicas",) for change in spec_changes)


def effect_of(located: LocatedCluster, template: KubeRayTemplate) -> EditEffect:
    """Return what applying the template would do. Raises KubeError, ConfigError."""
    manifest = _rendered(located, template)
    pods = pods_of_cluster(located)
    effect = effect_of_edit(
        located.kube.get(located.path),  # The cache keeps no managedFields: the field owners.
        manifest.raycluster,
        jobs=_jobs(located),
        pods=None if pods is None else _counted(pods),
        base=_base(located),
    )
    return effect.model_copy(update={"refusal": _refusal(located, effect)})


def _refusal(located: LocatedCluster, effect: EditEffect) -> str:
    if effect.kind is EditKind.REPLACE:
        return effect.sentence
    namespace = located.scope.namespace
    missing_rights = rights.missing(located.kube, namespace, patience_s=rights.ANSWER_S)
    return rights.refusal(rights.PATCH, namespace) if rights.PATCH in missing_rights else ""


def apply(located: LocatedCluster, template: KubeRayTemplate, *, force: bool = False) -> None:
    """Apply a changed template; `force` takes over fields that others own.

    Raises ClusterStateError for what cannot be changed, and KubeError, which for a conflict names
    the other owners.
    """
    effect = effect_of(located, template)
    # The API server itself says which fields of others stand in the way.
    require_applicable(effect, cluster=located.name, force=True)
    manifest = _rendered(located, template)
    for companion in manifest.companions:
        refuse_foreign(located.kube, companion, cluster=located.own_name, uid=located.uid)
    is_same = effect.kind is EditKind.NOTHING and not is_changed(located, template)
    # An apply that changes nothing would own all fields, and the next one who removes a field of
    # theirs from their manifest would find it still there.
    changed = located.raycluster if is_same else _applied(located, manifest, force=force)
    for companion in manifest.companions:
        ensure_owned(located.kube, companion, changed)
    invalidate_ray(located)


def _applied(located: LocatedCluster, manifest: Manifest, *, force: bool) -> Mapping[str, Any]:
    body = _body(located, manifest)
    _take_back(located)
    try:
        changed = located.kube.apply(located.path, body, force=force)
    except KubeError as error:
        if force or not _is_harmless(error, located):
            raise
        # Fields set by scale or resume belong to us under another operation, and the autoscaler
        # owns the whole list of groups because of the replicas, which we keep.
        changed = located.kube.apply(located.path, body, force=True)
    located.cache.put(changed)
    return changed


def _rendered(located: LocatedCluster, template: KubeRayTemplate) -> Manifest:
    missing = features.lacking(located.kube)
    if missing is None:
        spec = located.raycluster["spec"]
        missing = frozenset(name for name in features.OPTIONAL if name not in spec)
    return render(template, namespace=located.scope.namespace, missing_fields=missing)


def _base(located: LocatedCluster) -> Raw | None:
    """Return what we rendered when the cluster was made or changed last; None if others made it."""
    recorded = status.template_of(located.raycluster)
    if not isinstance(recorded, KubeRayTemplate):
        return None
    try:
        return _rendered(located, recorded).raycluster
    except LLMOpsError:
        # Another release wrote a template that this one cannot render.
        return None


def _body(located: LocatedCluster, manifest: Manifest) -> Raw:
    """Return the manifest with the cluster's own annotations and what others wrote into lists."""
    now = located.kube.get(located.path)  # The cached object may be some seconds old.
    body = copy.deepcopy(manifest.raycluster)
    base = _base(located)
    if base is not None:
        body["spec"] = with_additions(body["spec"], now["spec"], base["spec"])
    annotations = labels(located.raycluster, "metadata", "annotations")
    for name in (names.CREATED_BY, names.CREATION, names.CHOSEN):
        if name in annotations:
            body["metadata"]["annotations"][name] = annotations[name]
    _keep_elastic(body, located.raycluster)
    if status.is_elastic(now):
        _gate_new_groups(body, now)
    if body["spec"].get("enableInTreeAutoscaling"):
        live = {group.get("groupName"): group for group in worker_groups(now)}
        for group in body["spec"]["workerGroupSpecs"]:
            if group["groupName"] in live:
                # The list is replaced as a whole: if left out, the value would become 0.
                group["replicas"] = live[group["groupName"]].get("replicas") or 0
    return body


def _gate_new_groups(body: Raw, live: Mapping[str, Any]) -> None:
    """Put Kueue's gate on groups that come: its webhook writes it at the creation only, and refuses
    a change of an elastic job without it.
    """
    live_groups = {text(group, "groupName") for group in worker_groups(live)}
    for group in body["spec"]["workerGroupSpecs"]:
        if group["groupName"] not in live_groups:
            gates = group["template"]["spec"].setdefault("schedulingGates", [])
            if not any(gate.get("name") == names.ELASTIC_GATE for gate in gates):
                gates.append({"name": names.ELASTIC_GATE})


def _keep_elastic(body: Raw, live: Mapping[str, Any]) -> None:
    """Keep Kueue's annotation as it is: Kueue refuses to change it while the cluster runs."""
    annotations = body["metadata"]["annotations"]
    if text(live, "metadata", "uid") and live["spec"].get("suspend") is False:
        annotations.pop(names.ELASTIC_ANNOTATION, None)
        if was := status.annotation(live, names.ELASTIC_ANNOTATION):
            annotations[names.ELASTIC_ANNOTATION] = was


def _take_back(located: LocatedCluster) -> None:
    """Make apply the owner of our fields, so that a field that left the template is removed.

    The cluster was created by a plain request, and a later apply would never remove that request's
    fields (`kubectl` does the same when it migrates to server-side apply). The operator may change
    the object between reading and writing it: then it is read again.
    """
    change(replace(located, raycluster=located.kube.get(located.path)), _taken_back)


def _taken_back(live: Raw) -> Raw:
    entries = (live["metadata"].get("managedFields")) or []
    own_entries = [entry for entry in entries if _is_our_update(entry)]
    if not own_entries:
        return {}
    applied = [entry for entry in entries if _is_our_apply(entry)]
    fields: Raw = {}
    for entry in (*own_entries, *applied):
        fields = _union(fields, entry.get("fieldsV1") or {})
    remaining = [entry for entry in entries if entry not in own_entries and entry not in applied]
    remaining.append({**own_entries[-1], "operation": "Apply", "fieldsV1": fields})
    return {"metadata": {"managedFields": remaining}}


def _is_our_update(entry: Mapping[str, Any]) -> bool:
    return _is_ours(entry) and entry.get("operation") == "Update"


def _is_our_apply(entry: Mapping[str, Any]) -> bool:
    return _is_ours(entry) and entry.get("operation") == "Apply"


def _is_ours(entry: Mapping[str, Any]) -> bool:
    return entry.get("manager") == FIELD_MANAGER and not entry.get("subresource")


def _union(first: Raw, second: Mapping[str, Any]) -> Raw:
    merged = dict(first)
    for name, fields in second.items():
        merged[name] = _union(merged.get(name) or {}, fields or {})
    return merged


def _is_harmless(error: KubeError, located: LocatedCluster) -> bool:
    """Return whether nothing of others is lost by taking over the fields in conflict.

    That is so for our other operations, and for lists in which Kueue or the autoscaler has changed
    nothing of ours: what they added is sent back. Whoever applies a manifest sets its values again.
    """
    if error.reason != "Conflict":
        return False
    foreign = [
        (field, cause)
        for field, cause in error.causes or [("", "")]
        if f'"{FIELD_MANAGER}"' not in cause
    ]
    if not foreign:
        return True
    base = _base(located)
    if base is None or not all(_is_list(field) for field, _ in foreign):
        return False
    by_kueue = all(_KUEUE in cause for _, cause in foreign)
    if not by_kueue and not status.is_autoscaled(base):
        return False
    live = located.kube.get(located.path)
    if any(f'"{manager}"' in cause for manager in appliers(live) for _, cause in foreign):
        return False
    lists = list_changes(live, base)
    # Our `scale` changes replicas, and then Kueue becomes the owner of the list.
    return all(by_kueue and change.path[2:] == ("replicas",) for change in lists)


def _is_list(field: str) -> bool:
    return field == _GROUPS or field.rpartition(".")[2] in SETS


def _jobs(located: LocatedCluster) -> list[str] | None:
    phase = status.phase_of(located.raycluster)
    if phase.state == "stopped" and not phase.head_runs:
        return []
    jobs = jobs_of(located)
    return None if jobs is None else [described_job(job) for job in jobs if is_active(job)]


def _counted(pods: list[dict[str, Any]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for pod in pods:
        pod_labels = labels(pod, "metadata", "labels")
        is_head = pod_labels.get(names.RAY_NODE_TYPE_LABEL) == "head"
        counts["head" if is_head else pod_labels.get(names.RAY_GROUP_LABEL, "")] += 1
    return dict(counts)


# --- Additions of others ---
# What others added to a RayCluster in lists that an apply replaces: it is sent back with ours.
#
# Kueue writes labels, annotations, node selectors, tolerations and a scheduling gate into the pod
# templates of each worker group when it admits a cluster; webhooks and service meshes add
# containers and volumes. All worker groups are one list with one owner, so an apply without them
# would be refused, or would delete them.


def with_additions(
    rendered: Mapping[str, Any], live: Mapping[str, Any], base: Mapping[str, Any]
) -> Raw:
    """Return the spec to apply: `rendered` and what others wrote into atomic lists of `live`.

    `base` is what we rendered before: all else in those lists is theirs.
    """
    return _map(rendered, live, base, whole=False)


def _map(new: Any, live: Any, base: Any, *, whole: bool) -> Raw:
    merged = {key: _value(key, new[key], live, base, whole=whole) for key in new}
    if whole:
        # `scaleStrategy` is left out, as the autoscaler removes its orders itself.
        foreign_keys = [key for key in live if key not in new and key not in base]
        merged |= {key: copy.deepcopy(live[key]) for key in foreign_keys if key not in NOT_OURS}
    return merged


def _value(key: str, rendered: Any, live: Any, base: Any, *, whole: bool) -> Any:
    current, previous = live.get(key, ABSENT), base.get(key, ABSENT)
    if isinstance(rendered, Mapping) and isinstance(current, Mapping):
        return _map(
            rendered, current, previous if isinstance(previous, Mapping) else {}, whole=whole
        )
    if key in KEYS and isinstance(rendered, list) and isinstance(current, list):
        previous_items = previous if isinstance(previous, list) else []
        return _list(rendered, current, previous_items, by=KEYS[key], whole=whole or key in ATOMIC)
    return copy.deepcopy(with_others(key, current, rendered, previous))


def _list(
    rendered: list[Any], current: list[Any], previous: list[Any], *, by: str, whole: bool
) -> list[Any]:
    current_by_name, previous_by_name = _by_name(current, by), _by_name(previous, by)
    merged = [
        _map(item, current_by_name[name], previous_by_name.get(name, {}), whole=whole)
        if (name := str(item.get(by))) in current_by_name
        else copy.deepcopy(item)
        for item in rendered
    ]
    if whole:
        remaining = [
            name
            for name in current_by_name
            if name not in previous_by_name and name not in _by_name(rendered, by)
        ]
        merged += [copy.deepcopy(current_by_name[name]) for name in remaining]
    return merged


def _by_name(items: list[Any], by: str) -> dict[str, Any]:
    return {str(item.get(by)): item for item in items if isinstance(item, Mapping)}


# --- Messages of `up` about a RayCluster that exists already, and refusals to use it ---
# `kubectl create` refuses an existing object and `kubectl apply` changes it; `up` does neither. A
# team that shares a template attaches with it; a cluster of that name that somebody else made
# from another specification is not what the template asks for.


_SHOWN: Final = 100


def note_of(located: LocatedCluster, template: KubeRayTemplate, *, home: Path) -> str:
    """Return what to say of a cluster that is not new; empty for nothing.

    Raises ClusterStateError if somebody else made it and its specification is not the template's,
    and KubeError.
    """
    differs = is_changed(located, template)
    if own_clusters.read(home, located.raycluster).is_guarded:
        return _unlike(located, template) if differs else ""
    if differs and spec_differs(located, template):
        raise ClusterStateError(
            f"RayCluster {located.own_name} in {located.scope} is not yours: {_maker(located)}. Its"
            " specification differs from the template's. It was not changed",
            remedy=f"to use it as it is, name it instead of the template (`llmops status"
            f" {located.own_name}`, `--cluster {located.own_name}`); for a cluster of your own,"
            " choose another `name` in the template; `llmops cluster apply` changes it for all;"
            f" if you created it with another home folder, {_claim(located)}",
        )
    return _sentences(
        f"RayCluster {located.own_name} in {located.scope} is shared: {_maker(located)}",
        _recovery_hint(located),
        _unlike(located, template) if differs else "",
    )


def _sentences(*parts: str) -> str:
    return ". ".join(part.rstrip(".") for part in parts if part)


def _maker(located: LocatedCluster) -> str:
    """Return who made it, as far as its annotation and label say: anybody may change them."""
    by = status.annotation(located.raycluster, names.CREATED_BY)
    if by:
        return f"it was created by {one_line(by, limit=_SHOWN)}"
    if status.is_ours(located.raycluster):
        return "it was created from a manifest, not by this user's `llmops up`"
    return "it was not created by llmops"


def _recovery_hint(located: LocatedCluster) -> str:
    """Return how a user with a new home folder gets back a cluster of the earlier one."""
    if status.annotation(located.raycluster, names.CREATED_BY) != who():
        return ""
    return f"If that was you with another home folder, {_claim(located)}"


def _claim(located: LocatedCluster) -> str:
    """Return how to record an owner: the annotation proves nothing, Kubernetes keeps no creator."""
    return f"`llmops cluster guard {located.own_name}` records that it is yours"


def _unlike(located: LocatedCluster, template: KubeRayTemplate) -> str:
    """Return what to do if the template differs from the one the cluster was created from."""
    try:
        effect = effect_of(located, template)
    except LLMOpsError as error:
        return (
            "It was created from another template; the effect of applying this one is unknown:"
            f" {error}"
        )
    if effect.kind == "nothing":
        return ""
    return _sentences(
        f"It runs as it was created, and the template differs. `llmops cluster apply`:"
        f" {effect.sentence}",
        effect.conflict,
    )
