"""The public functions: clusters and runs, from a notebook, a script or the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmops_kernel.api.cluster_handle import Cluster, ClusterList
from llmops_kernel.api.environment import default_progress
from llmops_kernel.api.run_handle import Run
from llmops_kernel.api.run_list import Comparison, RunList
from llmops_kernel.api.sweeps import Rerun, Sweep
from llmops_kernel.api.tools import (
    DataPreview,
    PlanTable,
    bench,
    data_preview,
    demo,
    doctor,
    mine,
    plan,
    plan_grid,
    query,
)
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services import clusters as cluster_service
from llmops_kernel.services import templates
from llmops_kernel.services.backend import current
from llmops_kernel.services.clusters import guard_once
from llmops_kernel.services.configs import check, init, schema
from llmops_kernel.services.projects import Project
from llmops_kernel.services.run_list import list_rows, newest
from llmops_kernel.services.sweep_plan import load_sweep
from llmops_kernel.views.run_query.query import Query

if TYPE_CHECKING:
    from llmops_kernel.jobs.guard import Report as GuardReport

__all__ = [
    "Cluster",
    "ClusterList",
    "Comparison",
    "DataPreview",
    "PlanTable",
    "Project",
    "Rerun",
    "Run",
    "RunList",
    "Sweep",
    "attach",
    "bench",
    "check",
    "cluster",
    "clusters",
    "compare",
    "data_preview",
    "demo",
    "doctor",
    "down",
    "guard",
    "init",
    "init_cluster_template",
    "mine",
    "plan",
    "plan_grid",
    "project",
    "query",
    "render",
    "runs",
    "schema",
    "sweep",
    "up",
]


def up(
    template: str | Path = "local", *, wait: bool = False, progress: Progress | None = None
) -> Cluster:
    """Attach to a cluster, or start it when there is none.

    `template` is the name of a built-in cluster template or the path of a YAML file. A local
    cluster is ready when this returns, seconds later. One on Kubernetes takes minutes, so it keeps
    starting in the background unless `wait`: `cluster.submit()` waits for it, and so does
    `cluster.wait()`. The cluster outlives this process.
    """
    backend = current()
    chosen, path = cluster_service.read_template(template)
    progress = progress or default_progress()
    info = cluster_service.up(chosen, path=path, wait=wait, progress=progress, backend=backend)
    provider = backend.provider_for(chosen)
    return Cluster(info.name, provider=provider, backend=backend)


def down(name: str = "local") -> None:
    """Stop a cluster. Other processes are not affected, and its runs are kept on disk."""
    cluster(name).down()


def cluster(name: str = "local") -> Cluster:
    """Return a known cluster, whatever its state; starts nothing.

    Raises ClusterNotFoundError.
    """
    backend = current()
    return Cluster(name, provider=backend.provider_for(name), backend=backend)


def clusters() -> ClusterList:
    """Return all known clusters, including dead and stopped ones."""
    backend = current()
    by_name = {provider.name: provider for provider in backend.providers()}
    survey = backend.survey()
    handles = (
        Cluster(info.name, provider=by_name[info.provider], backend=backend)
        for info in survey.infos
    )
    return ClusterList(backend, handles, errors=survey.errors)


def render(template: str | Path, *, namespace: str | None = None, validate: bool = False) -> str:
    """Return the Kubernetes manifest that `up` would create, as YAML.

    `validate` asks the API server whether it would accept the manifest (a server-side dry run).
    """
    return templates.render(template, namespace=namespace, validate=validate).yaml


def init_cluster_template(name: str, *, kind: str = "kuberay", force: bool = False) -> Path:
    """Write a cluster template, with comments; return its path.

    `name` is that of the template, which is written to `cluster_templates/`, or of its file.
    `kind` is what to start from: `kuberay` and `local` explain every field; or the name of a
    shipped template such as `gcp-h100`. Raises ConfigError if the file exists, unless `force`.
    """
    return templates.init(name, kind=kind, force=force)


def guard(name: str, *, force: bool = False) -> GuardReport:
    """Check a cluster's idle policy once, and suspend or delete the cluster if it is due.

    `force` does so even when the history of its runs cannot be archived.
    """
    return guard_once(name, force=force)


def runs(
    where: str = "",
    *,
    sort: str = "",
    columns: Sequence[str] | None = None,
    name: str | None = None,
    cluster: str | None = None,
    limit: int | None = 20,
    starred: bool | None = None,
    all: bool = False,
) -> RunList:
    """Return the runs of this home folder, newest first.

    `where` filters by figures, config fields and facts: `"method.r > 8 and eval_loss < 0.4"`; a
    run whose value is unknown never matches. `sort="-eval_loss,created"` begins with the largest
    loss. `columns` are the ones that the table and `to_pandas()` have. `all` includes runs of
    benchmarks and `doctor`. Raises QueryError for a column that no run has.
    """
    backend = current()
    named: dict[str, Any] = {"name": name, "cluster": cluster, "starred": starred, "limit": limit}
    if where or sort or columns is not None:
        query = Query(where=where, sort=sort, columns=tuple(columns or ()), hidden=all)
        return RunList(backend, list_rows(backend.store, query, **named))
    return RunList(backend, newest(backend.store, hidden=all, **named))


def attach(ref: str = "last") -> Run:
    """Return a run by its id, a unique beginning of it, `last` or `last~1`; needs no cluster.

    Raises RunNotFoundError with similar ids.
    """
    backend = current()
    return Run(backend, backend.store.resolve(ref))


def project(name: str) -> Project:
    """Return a project: `phases`, `history()`, and `rule(phase, scoring=..., figure=...)`.

    A project exists once a run is in it, or a phase has a rule. Raises StoreError for a name that
    is empty or too long.
    """
    return Project(current(), name)


def sweep(ref: str = "last") -> Sweep:
    """Return a sweep by its id, a unique beginning of it, or `last`; starts nothing.

    `cluster.sweep(...)` starts one. Raises RunNotFoundError.
    """
    backend = current()
    return Sweep(backend, load_sweep(backend.store, ref))


def compare(*runs: Run | str, base: Run | str | None = None) -> Comparison:
    """Compare two or more runs: overlaid curves, and what differs between them.

    Changes are from `base`, one of the runs; without it from the oldest.

    Of two scorings of the same table also their metrics with intervals, and their rows.

    Raises ComparisonError for fewer than two different runs.
    """
    handles = [attach(run) if isinstance(run, str) else run for run in runs]
    first = attach(base) if isinstance(base, str) else base
    return Comparison(current(), handles, base=first)
