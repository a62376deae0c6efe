"""The public functions: clusters and runs, from a notebook, a script or the command line."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.api.cluster_handle import Cluster
from llmops_kernel.api.lists import ClusterList, Comparison, RunList
from llmops_kernel.api.run_handle import Run
from llmops_kernel.api.surroundings import default_progress
from llmops_kernel.clusters.provider import Progress
from llmops_kernel.clusters.providers import all_clusters, provider_for, providers
from llmops_kernel.config.cluster import find_template, load_cluster_template
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.runs.store import RunStore

__all__ = [
    "Cluster",
    "Comparison",
    "Run",
    "attach",
    "cluster",
    "clusters",
    "compare",
    "down",
    "runs",
    "up",
]


def up(
    template: str | Path = "local", *, wait: bool = False, progress: Progress | None = None
) -> Cluster:
    """Attach to a cluster, or start it when it is not there.

    `template` is the name of a built-in cluster template or the path of a YAML file. A local
    cluster is ready when this returns, seconds later. One on Kubernetes takes minutes, so it is
    only asked for, unless `wait`: `cluster.submit()` waits for it, and so does `cluster.wait()`.
    The cluster outlives this process.
    """
    chosen = load_cluster_template(template)
    path = find_template(template)
    provider = provider_for(chosen)
    info = provider.up(
        chosen,
        template_path=path.resolve() if path else None,
        progress=progress or default_progress(),
        wait=wait,
    )
    return Cluster(info.name, provider=provider)


def down(name: str = "local") -> None:
    """Stop a cluster: its own processes and nobody else's. Its runs stay on disk."""
    cluster(name).down()


def cluster(name: str = "local") -> Cluster:
    """A handle of a cluster that is known, ready or not; starts nothing.

    Raises ClusterNotFoundError.
    """
    return Cluster(name, provider=provider_for(name))


def clusters() -> ClusterList:
    """All known clusters, also dead and stopped ones."""
    by_name = {provider.name: provider for provider in providers()}
    return ClusterList(
        Cluster(info.name, provider=by_name[info.provider]) for info in all_clusters()
    )


def runs(*, name: str | None = None, cluster: str | None = None, limit: int | None = 20) -> RunList:
    """Runs of this home folder, newest first."""
    store = RunStore()
    return RunList(store, store.list(name=name, cluster=cluster, limit=limit))


def attach(ref: str = "last") -> Run:
    """A run by its id, a unique beginning of it, `last` or `last~1`; needs no cluster.

    Raises RunNotFoundError with near matches.
    """
    store = RunStore()
    return Run(store, store.resolve(ref))


def compare(*runs: Run | str) -> Comparison:
    """The curves of two or more runs over each other, beside what differs between them."""
    handles = [attach(run) if isinstance(run, str) else run for run in runs]
    if len(handles) < 2:
        raise LLMOpsError(
            f"compare() was given {len(handles)} run(s)",
            remedy="name two or more: llmops.compare('last~1', 'last')",
        )
    return Comparison(handles)
