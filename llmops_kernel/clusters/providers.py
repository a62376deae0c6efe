"""Which provider has which cluster."""

from __future__ import annotations

from llmops_kernel.clusters.local import LocalProvider
from llmops_kernel.clusters.provider import ClusterInfo, ClusterProvider
from llmops_kernel.config.cluster import ClusterTemplate
from llmops_kernel.errors import ClusterNotFoundError


def providers() -> list[ClusterProvider]:
    return [LocalProvider()]


def provider_for(template: ClusterTemplate | str) -> ClusterProvider:
    """The provider that a template names, or that has the cluster of that name.

    Raises ClusterNotFoundError for the name of a cluster that nobody knows.
    """
    if isinstance(template, str):
        return provider_for_name(template)
    return next(provider for provider in providers() if provider.name == template.provider)


def provider_for_name(name: str) -> ClusterProvider:
    known = {known: provider for provider in providers() for known in provider.names()}
    if name not in known:
        there = ", ".join(sorted(known)) or "none yet"
        raise ClusterNotFoundError(
            f"There is no cluster {name!r}; known: {there}", remedy=f"llmops up {name}"
        )
    return known[name]


def find_cluster(name: str) -> ClusterInfo:
    """Raises ClusterNotFoundError."""
    return provider_for_name(name).get(name)


def all_clusters() -> list[ClusterInfo]:
    return [info for provider in providers() for info in provider.list()]
