"""A changed template: what applying it would do, and doing it by server-side apply."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from llmops_kernel.clusters.actions import described_job
from llmops_kernel.clusters.dashboard import is_active
from llmops_kernel.clusters.kuberay import features, names, status
from llmops_kernel.clusters.kuberay.creating import ensure_owned
from llmops_kernel.clusters.kuberay.describing import pods_of_cluster
from llmops_kernel.clusters.kuberay.effect_of_edit import EditEffect, EditKind, effect_of_edit
from llmops_kernel.clusters.kuberay.finding import Found
from llmops_kernel.clusters.kuberay.kube import FIELD_MANAGER, KubeError
from llmops_kernel.clusters.kuberay.manifest import Manifest, render
from llmops_kernel.clusters.kuberay.objects import labels
from llmops_kernel.clusters.kuberay.ray_probe import forget_ray, jobs_of
from llmops_kernel.clusters.kuberay.spec_changes import changes
from llmops_kernel.config.kuberay import KubeRayTemplate
from llmops_kernel.errors import ClusterStateError

Raw = dict[str, Any]
_GROUPS: Final = ".spec.workerGroupSpecs"


def is_changed(found: Found, template: KubeRayTemplate) -> bool:
    """Whether it was made from another template; always for one that others made."""
    return status.template_of(found.raycluster) != template


def effect_of(found: Found, template: KubeRayTemplate) -> EditEffect:
    """Raises KubeError, ConfigError."""
    manifest = _rendered(found, template)
    pods = pods_of_cluster(found)
    return effect_of_edit(
        found.kube.get(found.path),  # The cache keeps no managedFields: whose is which field.
        manifest.raycluster,
        jobs=_jobs(found),
        pods=None if pods is None else _counted(pods),
    )


def apply(found: Found, template: KubeRayTemplate, *, force: bool = False) -> None:
    """`force` takes over fields that others own.

    Raises ClusterStateError for what cannot be changed, and KubeError, for a conflict with the
    names of the other owners.
    """
    effect = effect_of(found, template)
    if effect.kind is EditKind.REPLACE:
        raise ClusterStateError(
            f"Cluster {found.name!r} cannot become what the template says: {effect.sentence}",
            remedy=effect.safe_way,
        )
    manifest = _rendered(found, template)
    body = _body(found, manifest)
    _take_back(found)
    try:
        changed = found.kube.apply(found.path, body, force=force)
    except KubeError as error:
        if force or not _is_harmless(error, found):
            raise
        # Fields that we set by scale or resume are owned by us under another operation, and
        # the autoscaler owns the whole list of groups for the replicas that we keep.
        changed = found.kube.apply(found.path, body, force=True)
    found.cache.put(changed)
    for companion in manifest.companions:
        ensure_owned(found.kube, companion, changed)
    forget_ray(found)


def _rendered(found: Found, template: KubeRayTemplate) -> Manifest:
    lacks = features.lacking(found.kube)
    if lacks is None:
        spec = found.raycluster["spec"]
        lacks = frozenset(name for name in features.OPTIONAL if name not in spec)
    return render(template, namespace=found.place.namespace, lacks=lacks)


def _body(found: Found, manifest: Manifest) -> Raw:
    """With the annotations that are not the template's, and without what others decide."""
    body = copy.deepcopy(manifest.raycluster)
    own = labels(found.raycluster, "metadata", "annotations")
    for name in (names.CREATED_BY, names.CHOSEN):
        if name in own:
            body["metadata"]["annotations"][name] = own[name]
    if body["spec"].get("enableInTreeAutoscaling"):
        now = found.kube.get(found.path)  # The cached one may be some seconds old.
        live = {group.get("groupName"): group for group in status.groups_of(now)}
        for group in body["spec"]["workerGroupSpecs"]:
            if group["groupName"] in live:
                # The list is replaced whole: left out, it would become 0.
                group["replicas"] = live[group["groupName"]].get("replicas") or 0
    return body


def _take_back(found: Found) -> None:
    """Make our fields those of an apply, so that a field that left the template is removed.

    The cluster was created by a plain request, whose fields a later apply would never remove
    (`kubectl` does the same when it goes over to server-side apply).
    """
    live = found.kube.get(found.path)
    entries = (live["metadata"].get("managedFields")) or []
    ours = [entry for entry in entries if _is_our_update(entry)]
    if not ours:
        return
    applied = [entry for entry in entries if _is_our_apply(entry)]
    fields: Raw = {}
    for entry in (*ours, *applied):
        fields = _union(fields, entry.get("fieldsV1") or {})
    kept = [entry for entry in entries if entry not in ours and entry not in applied]
    kept.append({**ours[-1], "operation": "Apply", "fieldsV1": fields})
    version = live["metadata"]["resourceVersion"]
    patch = {"metadata": {"managedFields": kept, "resourceVersion": version}}
    found.kube.merge(found.path, patch)


def _is_our_update(entry: Mapping[str, Any]) -> bool:
    return _is_ours(entry) and entry.get("operation") == "Update"


def _is_our_apply(entry: Mapping[str, Any]) -> bool:
    return _is_ours(entry) and entry.get("operation") == "Apply"


def _is_ours(entry: Mapping[str, Any]) -> bool:
    return entry.get("manager") == FIELD_MANAGER and not entry.get("subresource")


def _union(one: Raw, other: Mapping[str, Any]) -> Raw:
    merged = dict(one)
    for name, fields in other.items():
        merged[name] = _union(merged.get(name) or {}, fields or {})
    return merged


def _is_harmless(error: KubeError, found: Found) -> bool:
    """Conflicts with ourselves under another operation, or with the autoscaler's replicas."""
    others = [
        field for field, what in error.causes or [("", "")] if f'"{FIELD_MANAGER}"' not in what
    ]
    if error.reason != "Conflict":
        return False
    return not others or (set(others) == {_GROUPS} and _only_replicas_differ(found))


def _only_replicas_differ(found: Found) -> bool:
    """Nobody but the autoscaler has changed the worker groups since our last apply."""
    recorded = status.template_of(found.raycluster)
    if not isinstance(recorded, KubeRayTemplate) or not recorded.autoscaling.enabled:
        return False
    was = _rendered(found, recorded).raycluster
    return not any(change.group for change in changes(found.kube.get(found.path), was))


def _jobs(found: Found) -> list[str] | None:
    if status.phase_of(found.raycluster).state == "stopped":
        return []
    jobs = jobs_of(found)
    return None if jobs is None else [described_job(job) for job in jobs if is_active(job)]


def _counted(pods: list[dict[str, Any]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for pod in pods:
        own = labels(pod, "metadata", "labels")
        is_head = own.get(names.RAY_NODE_TYPE_LABEL) == "head"
        counts["head" if is_head else own.get(names.RAY_GROUP_LABEL, "")] += 1
    return dict(counts)
