"""Which provider has which cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmops_kernel.clusters.kuberay.provider import KubeRayProvider
from llmops_kernel.clusters.local import LocalProvider
from llmops_kernel.clusters.provider import ClusterInfo, ClusterProvider
from llmops_kernel.config.cluster import AnyTemplate
from llmops_kernel.errors import ClusterNotFoundError, LLMOpsError


@dataclass(frozen=True)
class Survey:
    """All clusters, with what could not be looked at."""

    infos: tuple[ClusterInfo, ...]
    troubles: tuple[LLMOpsError, ...] = ()


def providers() -> list[ClusterProvider]:
    """Local ones first: their names are found without any network."""
    return [LocalProvider(), KubeRayProvider()]


def provider_for(template: AnyTemplate | str) -> ClusterProvider:
    """The provider that a template names, or that has the cluster of that name.

    Raises ClusterNotFoundError for the name of a cluster that nobody knows.
    """
    if isinstance(template, str):
        return provider_for_name(template)
    return next(provider for provider in providers() if provider.name == template.provider)


def provider_for_name(name: str) -> ClusterProvider:
    """Raises ClusterNotFoundError, and the error of a provider that may have it but is away."""
    known: list[str] = []
    trouble: LLMOpsError | None = None
    for provider in providers():
        try:
            names = provider.names()
            if name in names or _has(provider, name):
                return provider
        except LLMOpsError as error:
            trouble = error
            # Whoever has a kubeconfig for other things must not hear of it at each wrong name.
            if isinstance(provider, KubeRayProvider) and provider.is_used:
                raise
        else:
            known += names
    there = ", ".join(sorted(known)) or "none yet"
    also = f". Not looked at: {trouble.message}" if trouble is not None else ""
    raise ClusterNotFoundError(
        f"There is no cluster {name!r}; known: {there}{also}", remedy=f"llmops up {name}"
    )


def _has(provider: ClusterProvider, name: str) -> bool:
    """One that its list does not show: made a moment ago, or named in full."""
    return isinstance(provider, KubeRayProvider) and provider.has(name)


def find_cluster(name: str) -> ClusterInfo:
    """Raises ClusterNotFoundError."""
    return provider_for_name(name).get(name)


def all_clusters() -> list[ClusterInfo]:
    """What can be told; `survey` tells as well what cannot."""
    return [*survey().infos]


def survey() -> Survey:
    """A provider in trouble hides no other."""
    infos: list[ClusterInfo] = []
    troubles: list[LLMOpsError] = []
    for provider in providers():
        try:
            found, errors = _look(provider)
        except LLMOpsError as error:
            found, errors = (), (error,)
        infos += found
        troubles += errors
    return Survey(tuple(infos), tuple(troubles))


def _look(provider: ClusterProvider) -> tuple[Sequence[ClusterInfo], Sequence[LLMOpsError]]:
    if isinstance(provider, KubeRayProvider):
        return provider.look()
    return provider.list(), ()
