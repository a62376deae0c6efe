"""Deletion: preconditions, finalizers, and what becomes of the objects that are owned."""

from __future__ import annotations

from typing import Any

from tests.k8s.standin.objects.errors import (
    ApiError,
    FieldError,
    about,
    invalid,
    not_found,
    qualified,
)
from tests.k8s.standin.objects.kinds import NAMESPACE, POD, Kind
from tests.k8s.standin.objects.metadata import now
from tests.k8s.standin.objects.store import Body, Snapshot, Store
from tests.k8s.standin.objects.writes import Request

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
GRACEFUL = "standin/graceful"
"""Annotation of a node whose kubelet ends pods: deleting a pod there only marks it first."""
OBJECT_ANSWERS = frozenset({"Pod", "Namespace", "Service", "PersistentVolumeClaim", "Node"})
"""Kinds whose deletion answers with the object; others with a Status."""


class Deletes:
    """All that removes objects."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def delete(self, request: Request, options: dict[str, Any]) -> tuple[Snapshot, bool]:
        """The object as it is afterwards and whether it is gone."""
        kind = request.kind
        found = self.store.get(kind, request.namespace, request.name)
        if found is None:
            raise not_found(kind.group, kind.plural, request.name)
        _check_preconditions(found, options.get("preconditions") or {})
        finalizers = _finalizers(found, propagation(options))
        grace = self._grace(found, options)
        waits = bool(finalizers) or kind is NAMESPACE or grace > 0
        if request.dry_run:
            return found, not waits
        if not waits:
            return self.store.remove(found), True
        return self._mark(found, finalizers, grace), False

    def _mark(self, found: Snapshot, finalizers: list[str], grace: int) -> Snapshot:
        meta = dict(found.body["metadata"])
        if meta.get("deletionTimestamp") and meta.get("finalizers", []) == finalizers:
            return found
        meta.setdefault("deletionTimestamp", now())
        meta["deletionGracePeriodSeconds"] = grace
        if finalizers:
            meta["finalizers"] = finalizers
        if found.kind.counted:
            meta["generation"] = meta.get("generation", 1) + 1
        meta["resourceVersion"] = str(self.store.next_version())
        body = {**found.body, "metadata": meta}
        if found.kind is NAMESPACE:
            body["status"] = {**body.get("status", {}), "phase": "Terminating"}
        marked = Snapshot(found.kind, body, found.owners)
        self.store.put(marked)
        return marked

    def _grace(self, found: Snapshot, options: dict[str, Any]) -> int:
        if found.kind is not POD:
            return 0
        spec, status = found.body["spec"], found.body.get("status", {})
        node = self._node(spec.get("nodeName", ""))
        if node is None or status.get("phase") in ("Succeeded", "Failed"):
            return 0
        if GRACEFUL not in node.body["metadata"].get("annotations", {}):
            return 0
        stated = options.get("gracePeriodSeconds")
        return int(spec.get("terminationGracePeriodSeconds", 30) if stated is None else stated)

    def _node(self, name: str) -> Snapshot | None:
        kinds = [kind for kind in self.store.tables if kind.kind == "Node"]
        return self.store.get(kinds[0], "", name) if kinds and name else None


def propagation(options: dict[str, Any]) -> str:
    if options.get("orphanDependents"):
        return "Orphan"
    return options.get("propagationPolicy") or "Background"


def _finalizers(found: Snapshot, policy: str) -> list[str]:
    finalizers = list(found.body["metadata"].get("finalizers") or [])
    more = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(policy)
    if more and more not in finalizers:
        finalizers.append(more)
    return finalizers


def _check_preconditions(found: Snapshot, wanted: dict[str, Any]) -> None:
    kind, meta = found.kind, found.body["metadata"]
    for key, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        stated, actual = wanted.get(key), meta[key]
        if not stated or stated == actual:
            continue
        detail = (
            f"the {word} in the precondition ({stated}) does not match the {word} in record "
            f"({actual}). The object might have been deleted and then recreated"
            if key == "uid"
            else f"the ResourceVersion in the precondition ({stated}) does not match the "
            f"ResourceVersion in record ({actual}). The object might have been modified"
        )
        name = meta["name"]
        subject = qualified(kind.group, kind.kind)
        raise ApiError(
            409,
            "Conflict",
            f'Operation cannot be fulfilled on {subject} "{name}": {detail}',
            details=about(kind.group, kind.kind, name),
        )


def answers_object(kind: Kind, *, gone: bool) -> bool:
    return not gone or kind.kind in OBJECT_ANSWERS


def bad_dry_run(options_kind: str, values: list[str]) -> ApiError:
    listed = ", ".join(f'"{value}"' for value in values)
    text = f'Unsupported value: [{listed}]: supported values: "All"'
    error = FieldError("dryRun", "FieldValueNotSupported", text)
    return invalid("meta.k8s.io", options_kind, "", [error])


__all__ = ["Body", "Deletes"]
