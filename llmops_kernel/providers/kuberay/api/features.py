"""Fields of the installed RayCluster CRD: read from its schema, never from a version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from llmops_kernel.providers.kuberay.api.client import Kube, KubeError
from llmops_kernel.providers.kuberay.api.paths import INSTALL_KUBERAY, RAYCLUSTER_CRD, with_scope
from llmops_kernel.providers.kuberay.api.refreshing_cache import RefreshingCache

OPTIONAL: Final = ("authOptions",)
"""Fields of the spec that have an alternative for CRDs that are older than they are."""
_known: RefreshingCache[frozenset[str] | None] = RefreshingCache(
    # An operator that is installed later, or an API server that is away, is found soon.
    refresh_after_s=600.0,
    patience_s=5.0,
    stale_s=3600.0,
    is_doubtful=lambda fields: not fields,
)


def spec_fields(kube: Kube) -> frozenset[str] | None:
    """Return the names of the fields below `spec`; None if the CRD may not be read.

    Raises KubeError when KubeRay is not installed.
    """
    fields = _known.get(kube.key, lambda: _read(kube))
    if fields is not None and not fields:
        raise KubeError(
            f"KubeRay's operator is not installed in context {kube.context}: there is no CRD"
            " rayclusters.ray.io",
            code=404,
            reason="ApiNotFound",
            remedy=with_scope(INSTALL_KUBERAY, context=kube.context),
        )
    return fields


def lacking(kube: Kube) -> frozenset[str] | None:
    """Return the fields of OPTIONAL that the CRD lacks; None if only a dry run can find out."""
    fields = spec_fields(kube)
    return None if fields is None else frozenset(OPTIONAL) - fields


def unknown_in(error: KubeError) -> frozenset[str]:
    """Return the fields of OPTIONAL that a strict dry run rejected, if it rejected no others."""
    names = {field.split(".")[1] for field, _ in error.causes if field.startswith("spec.")}
    is_all = bool(error.causes) and all("unknown field" in cause for _, cause in error.causes)
    return frozenset(names) if is_all and names <= set(OPTIONAL) else frozenset()


def _read(kube: Kube) -> frozenset[str] | None:
    try:
        crd = kube.get(RAYCLUSTER_CRD)
    except KubeError as error:
        return frozenset() if error.code == 404 else None
    return frozenset(_fields_of((crd.get("spec") or {}).get("versions") or ()))


def _fields_of(versions: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for version in versions:
        if version.get("name") == "v1" and version.get("served", True):
            schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            spec = (schema.get("properties") or {}).get("spec") or {}
            return tuple(spec.get("properties") or ())
    return ()
