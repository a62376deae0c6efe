"""`up`: creates a RayCluster, or finds the existing one."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.errors import ClusterStartError, LLMOpsError
from llmops_kernel.providers.kuberay.api import features, kubeconfig
from llmops_kernel.providers.kuberay.api.client import (
    Kube,
    KubeError,
    KubeUnreachable,
    open_kube,
)
from llmops_kernel.providers.kuberay.api.paths import object_path, with_scope
from llmops_kernel.providers.kuberay.life.choose import find_or_choose
from llmops_kernel.providers.kuberay.life.companions import ensure_owned, refuse_foreign
from llmops_kernel.providers.kuberay.life.guard import who
from llmops_kernel.providers.kuberay.render.dry_run import accepted_manifest
from llmops_kernel.providers.kuberay.render.manifest import Manifest, render
from llmops_kernel.providers.kuberay.resource import names, own_clusters, status
from llmops_kernel.providers.kuberay.resource.objects import Obj
from llmops_kernel.providers.kuberay.state.discovery import (
    KubeScope,
    LocatedCluster,
    fetched,
    remember,
)
from llmops_kernel.providers.protocol import Progress

TOKEN_BYTES: Final = 32
_TRIES: Final = 3


@dataclass(frozen=True)
class CreatedCluster:
    """The result of `up`."""

    located: LocatedCluster
    is_new: bool


def create_or_find(template: KubeRayTemplate, *, home: Path, report: Progress) -> CreatedCluster:
    """Create the cluster, or return the existing one unchanged.

    Raises ClusterStartError, KubeError, and ClusterStateError for an object of somebody else,
    ConfigError.
    """
    answer = find_or_choose(template, candidate_scopes(template), home=home, report=report)
    if isinstance(answer, LocatedCluster):
        return _complete_existing(answer, template, home=home)
    scope, reason = answer.scope, answer.reason
    if reason:
        report(reason)
    kube = open_kube(scope.context)
    manifest = accepted_manifest(kube, template, namespace=scope.namespace, try_create=_dry_run)
    report(f"Creating RayCluster {template.name} in {scope}")
    location = _location(scope, template.name)
    mark = own_clusters.begin(home, *location)
    try:
        raycluster = _post(kube, _signed(manifest.raycluster, reason, mark), mark=mark)
    except KubeUnreachable:
        raise  # It may have been created: the next `up` knows it by its mark.
    except KubeError as error:
        own_clusters.finish(home, *location)
        # Another process was faster: its cluster is the one that was asked for.
        is_there = error.reason == "AlreadyExists"
        located = fetched(scope, template.name, home=home) if is_there else None
        if located is None:
            raise
        return CreatedCluster(located, is_new=False)
    _note(home, scope, raycluster, template)
    _make_companions(kube, manifest, raycluster)
    return CreatedCluster(_created(scope, template.name, home=home), is_new=True)


def _complete_existing(
    located: LocatedCluster, template: KubeRayTemplate, *, home: Path
) -> CreatedCluster:
    """Return a cluster that exists; the rest of one whose creation was cut off is made now."""
    scope, raycluster = located.scope, located.raycluster
    if not own_clusters.is_begun(home, raycluster, *_location(scope, located.own_name)):
        remember(home, scope)
        return CreatedCluster(located, is_new=False)
    recorded = status.template_of(raycluster) or template
    missing = features.lacking(located.kube) or frozenset()
    manifest = render(recorded, namespace=scope.namespace, missing_fields=missing)
    _note(home, scope, raycluster, recorded)
    _make_companions(located.kube, manifest, raycluster, undo=False)
    return CreatedCluster(located, is_new=recorded == template)


def _location(scope: KubeScope, name: str) -> tuple[str, str, str]:
    return scope.context, scope.namespace, name


def _note(home: Path, scope: KubeScope, raycluster: Obj, template: KubeRayTemplate) -> None:
    own_clusters.note(home, raycluster, template=template, is_guarded=True, context=scope.context)
    own_clusters.finish(home, *_location(scope, template.name))
    remember(home, scope)


def _post(kube: Kube, body: Obj, *, mark: str) -> Obj:
    """Create it. If no answer arrives, look whether it is there, else ask again.

    Raises KubeError, which says AlreadyExists for a cluster that somebody else created.
    """
    for last in (False,) * (_TRIES - 1) + (True,):
        try:
            return kube.create(object_path(dict(body), named=False), body)
        except KubeUnreachable as error:
            existing = _find_by_mark(kube, body, mark=mark)
            if existing is not None:
                return existing
            if last:
                raise error from None
        except KubeError as error:
            existing = (
                _find_by_mark(kube, body, mark=mark) if error.reason == "AlreadyExists" else None
            )
            if existing is None:
                raise
            return existing
    raise AssertionError("unreachable")


def _find_by_mark(kube: Kube, body: Obj, *, mark: str) -> Obj | None:
    """Return the cluster of our own request; None if it is not there. Raises KubeUnreachable."""
    try:
        existing = kube.get(object_path(dict(body)))
    except KubeError as error:
        if error.code == 404:
            return None
        raise
    return existing if status.annotation(existing, names.CREATION) == mark else None


def _created(scope: KubeScope, name: str, *, home: Path) -> LocatedCluster:
    located = fetched(scope, name, home=home)
    if located is None:
        raise ClusterStartError(
            f"RayCluster {name} was deleted immediately after it was created in {scope}",
            remedy=with_scope(
                "the events may show who deleted it: `kubectl get events`",
                context=scope.context,
                namespace=scope.namespace,
            ),
        )
    return located


def candidate_scopes(template: KubeRayTemplate) -> list[KubeScope]:
    """Return the template's scopes in its order. Raises KubeError for an unknown context."""
    contexts = [kubeconfig.context_named(name) for name in template.contexts or (None,)]
    return [
        KubeScope(context.name, template.namespace or context.namespace) for context in contexts
    ]


def _dry_run(kube: Kube, manifest: Manifest) -> None:
    cluster = str(manifest.raycluster["metadata"]["name"])
    for body in (manifest.raycluster, *manifest.companions):
        try:
            kube.create(object_path(body, named=False), body, dry_run=True)
        except KubeError as error:
            # An earlier cluster of that name left it behind; it is replaced.
            if error.reason != "AlreadyExists" or body is manifest.raycluster:
                raise
            refuse_foreign(kube, body, cluster=cluster)
    if manifest.needs_token:
        refuse_foreign(kube, _token_secret(manifest.raycluster), cluster=cluster)


def _signed(raycluster: Mapping[str, Any], reason: str, mark: str) -> dict[str, Any]:
    """Add annotations that are known only at creation, and so are not in the rendered manifest."""
    metadata = dict(raycluster["metadata"])
    metadata["annotations"] = {
        **metadata.get("annotations", {}),
        names.CREATED_BY: who(),
        names.CREATION: mark,
        **({names.CHOSEN: reason} if reason else {}),
    }
    return {**raycluster, "metadata": metadata}


def _make_companions(
    kube: Kube, manifest: Manifest, raycluster: Mapping[str, Any], *, undo: bool = True
) -> None:
    """Create the objects that the RayCluster owns and that are deleted with it.

    If one of them cannot be created, the RayCluster is deleted too, unless it is older.
    """
    bodies = list(manifest.companions)
    if manifest.needs_token:
        bodies.append(_token_secret(manifest.raycluster))
    try:
        for body in bodies:
            ensure_owned(kube, body, raycluster)
    except LLMOpsError:
        if undo:
            with suppress(LLMOpsError):
                kube.delete(object_path(manifest.raycluster), uid=raycluster["metadata"]["uid"])
        raise


def _token_secret(raycluster: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Secret that the operator creates itself if the CRD has token authentication."""
    meta = raycluster["metadata"]
    value = base64.b64encode(secrets.token_hex(TOKEN_BYTES).encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": names.token_secret(meta["name"]),
            "namespace": meta["namespace"],
            "labels": dict(meta.get("labels", {})),
        },
        "data": {names.TOKEN_KEY: value},
    }
