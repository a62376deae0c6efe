"""Objects that a RayCluster owns, such as its ConfigMap: never taken from others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from llmops_kernel.errors import ClusterStateError
from llmops_kernel.providers.kuberay.api.client import Kube, KubeError
from llmops_kernel.providers.kuberay.api.paths import object_path, with_scope
from llmops_kernel.providers.kuberay.resource import names
from llmops_kernel.providers.kuberay.resource.objects import Obj, fields, labels, objects, text

_TRIES: Final = 3


def ensure_owned(kube: Kube, body: Mapping[str, Any], raycluster: Obj) -> None:
    """Create an object that the RayCluster owns, or update one that is this cluster's already.

    Raises ClusterStateError for an object of somebody else, which stays as it is.
    """
    meta = raycluster["metadata"]
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": meta["name"],
        "uid": meta["uid"],
    }
    owned = {**body, "metadata": {**body["metadata"], "ownerReferences": [owner]}}
    namespace = str(meta["namespace"])
    for last in (False,) * (_TRIES - 1) + (True,):
        try:
            kube.create(object_path(owned, namespace=namespace, named=False), owned)
            return
        except KubeError as error:
            if error.reason != "AlreadyExists":
                raise
        try:
            _update(kube, owned, cluster=str(meta["name"]), uid=str(meta["uid"]))
            return
        except KubeError as error:
            # It was changed or removed between two requests: look again.
            if error.reason not in ("Conflict", "NotFound") or last:
                raise


def refuse_foreign(kube: Kube, body: Mapping[str, Any], *, cluster: str, uid: str = "") -> None:
    """Raise ClusterStateError if an object of that name is there and is not this cluster's.

    `uid` is the RayCluster's, once it has one.
    """
    try:
        existing = kube.get(object_path(dict(body)))
    except KubeError as error:
        if error.code in (403, 404):
            return  # What may not be seen is refused when it is written.
        raise
    _refuse(kube, existing, body, cluster=cluster, uid=uid)


def _update(kube: Kube, owned: Mapping[str, Any], *, cluster: str, uid: str) -> None:
    path = object_path(dict(owned))
    existing = kube.get(path)
    _refuse(kube, existing, owned, cluster=cluster, uid=uid)
    data = fields(owned, "data")
    # A key that somebody added would be a file in every pod, or a second token.
    extra = dict.fromkeys(fields(existing, "data").keys() - data.keys())
    meta = {**owned["metadata"], "resourceVersion": existing["metadata"].get("resourceVersion")}
    owners = objects(existing, "metadata", "ownerReferences")
    if not owners or any(text(owner, "uid") == uid for owner in owners):
        del meta["ownerReferences"]  # Whoever applied it by hand keeps it.
    changed = {"data": {**extra, **data}} if "data" in owned else {}
    kube.merge(path, {**owned, "metadata": meta, **changed})


def _refuse(kube: Kube, existing: Obj, body: Mapping[str, Any], *, cluster: str, uid: str) -> None:
    if not (problem := _foreign_reason(existing, kind=str(body["kind"]), cluster=cluster, uid=uid)):
        return
    kind, meta = str(body["kind"]), body["metadata"]
    namespace = str(meta.get("namespace", ""))
    raise ClusterStateError(
        f"{kind} {meta['name']} in namespace {namespace} is not of cluster {cluster!r}: {problem}."
        " It was not changed",
        remedy=with_scope(
            f"choose another name for the cluster; if nobody needs the {kind}:"
            f" `kubectl delete {kind.lower()} {meta['name']}`",
            context=kube.context,
            namespace=namespace,
        ),
    )


def _foreign_reason(existing: Obj, *, kind: str, cluster: str, uid: str) -> str:
    """Return why it belongs to somebody else; empty if it is of this cluster or an earlier one."""
    owners = objects(existing, "metadata", "ownerReferences")
    if uid and any(text(owner, "uid") == uid for owner in owners):
        return ""
    for owner in owners:
        # No other RayCluster of this name is left: the owner was an earlier one.
        if (text(owner, "kind"), text(owner, "name")) != (names.KIND, cluster):
            return f"its owner is {text(owner, 'kind')} {text(owner, 'name')}"
    existing_labels = labels(existing, "metadata", "labels")
    expected = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.CLUSTER_NAME_LABEL: cluster}
    for name, value in expected.items():
        if existing_labels.get(name) != value:
            return f"its label {name} is {existing_labels.get(name, 'missing')}, not {value}"
    # A manifest that was applied by hand has the labels and no owner. Nobody applies a Secret.
    return "it has no owner" if kind == "Secret" and not owners else ""
