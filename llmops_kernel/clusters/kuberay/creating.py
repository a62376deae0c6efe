"""`up`: makes a RayCluster, or finds that it is there."""

from __future__ import annotations

import base64
import getpass
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from llmops_kernel.clusters.kuberay import kubeconfig, names
from llmops_kernel.clusters.kuberay.choose import settled
from llmops_kernel.clusters.kuberay.dry_run import accepted_manifest
from llmops_kernel.clusters.kuberay.finding import Found, fetched
from llmops_kernel.clusters.kuberay.kube import Kube, KubeError, open_kube
from llmops_kernel.clusters.kuberay.kube_paths import object_path
from llmops_kernel.clusters.kuberay.manifest import Manifest
from llmops_kernel.clusters.kuberay.places import Place, remember
from llmops_kernel.clusters.provider import Progress
from llmops_kernel.config.kuberay import KubeRayTemplate
from llmops_kernel.errors import ClusterStartError, LLMOpsError

TOKEN_BYTES: Final = 32


@dataclass(frozen=True)
class Made:
    """What `up` did."""

    found: Found
    is_new: bool


def create_or_find(template: KubeRayTemplate, *, home: Path, tell: Progress) -> Made:
    """Nothing is changed where the cluster is there already.

    Raises ClusterStartError, KubeError, ConfigError.
    """
    there = settled(template, candidate_places(template), tell=tell)
    if isinstance(there, Found):
        remember(home, there.place)
        return Made(there, is_new=False)
    place, why = there.place, there.why
    if why:
        tell(why)
    kube = open_kube(place.context)
    manifest = accepted_manifest(kube, template, namespace=place.namespace, ask=_dry_run)
    tell(f"Asking for RayCluster {template.name} in {place}")
    try:
        raycluster = kube.create(
            object_path(manifest.raycluster, named=False), _signed(manifest.raycluster, why)
        )
    except KubeError as error:
        # Another process was faster: it is the cluster that was asked for.
        found = fetched(place, template.name) if error.reason == "AlreadyExists" else None
        if found is None:
            raise
        return Made(found, is_new=False)
    _make_companions(kube, manifest, raycluster)
    remember(home, place)
    found = fetched(place, template.name)
    if found is None:
        raise ClusterStartError(
            f"RayCluster {template.name} was deleted as soon as it was made in {place}",
            remedy=f"see who did: kubectl --context {place.context} get events"
            f" --namespace {place.namespace}",
        )
    return Made(found, is_new=True)


def candidate_places(template: KubeRayTemplate) -> list[Place]:
    """In the template's order. Raises KubeError for a context that is not in the kubeconfig."""
    contexts = [kubeconfig.context_named(name) for name in template.contexts or (None,)]
    return [Place(one.name, template.namespace or one.namespace) for one in contexts]


def _dry_run(kube: Kube, manifest: Manifest) -> None:
    for body in (manifest.raycluster, *manifest.companions):
        try:
            kube.create(object_path(body, named=False), body, dry_run=True)
        except KubeError as error:
            # Left behind by an earlier cluster of that name; it is replaced.
            if error.reason != "AlreadyExists" or body is manifest.raycluster:
                raise


def _signed(raycluster: Mapping[str, Any], why: str) -> dict[str, Any]:
    """With what is known only when it is made, and so is not in the rendered manifest."""
    metadata = dict(raycluster["metadata"])
    metadata["annotations"] = {
        **metadata.get("annotations", {}),
        names.CREATED_BY: _who(),
        **({names.CHOSEN: why} if why else {}),
    }
    return {**raycluster, "metadata": metadata}


def _who() -> str:
    user = "unknown"
    with suppress(OSError, KeyError, ImportError):
        user = getpass.getuser()
    return f"{user}@{socket.gethostname()}"


def _make_companions(kube: Kube, manifest: Manifest, raycluster: Mapping[str, Any]) -> None:
    """They are the RayCluster's and go with it. Nothing stays when one cannot be made."""
    bodies = list(manifest.companions)
    if manifest.needs_token:
        bodies.append(_token_secret(manifest.raycluster))
    try:
        for body in bodies:
            ensure_owned(kube, body, raycluster)
    except LLMOpsError:
        with suppress(LLMOpsError):
            kube.delete(object_path(manifest.raycluster), uid=raycluster["metadata"]["uid"])
        raise


def ensure_owned(kube: Kube, body: Mapping[str, Any], raycluster: Mapping[str, Any]) -> None:
    """Made, or made to fit where an earlier cluster of that name left one."""
    meta = raycluster["metadata"]
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": meta["name"],
        "uid": meta["uid"],
    }
    owned = {**body, "metadata": {**body["metadata"], "ownerReferences": [owner]}}
    try:
        kube.create(object_path(owned, namespace=meta["namespace"], named=False), owned)
    except KubeError as error:
        if error.reason != "AlreadyExists":
            raise
        kube.merge(object_path(owned, namespace=meta["namespace"]), owned)


def _token_secret(raycluster: Mapping[str, Any]) -> dict[str, Any]:
    """As the operator itself makes it where the CRD knows token authentication."""
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
