"""Operations on clusters: start, look up, connect, stop after archiving."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from llmops_kernel.config.models.cluster import AnyTemplate
from llmops_kernel.config.reading.document import dump
from llmops_kernel.config.reading.templates import find_template, load_cluster_template
from llmops_kernel.errors import (
    ClusterDeadError,
    ClusterStateError,
    ClusterUnreachableError,
    ConfigError,
    LLMOpsError,
)
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.history import Way, archive_before, only_copies, stop_after_archiving
from llmops_kernel.jobs.lost_runs import resubmit_waiting
from llmops_kernel.kinds.registry import view_of
from llmops_kernel.metrics.events import TERMINAL
from llmops_kernel.metrics.run_gauges import dashboard_manifest, dashboard_text
from llmops_kernel.providers.capabilities import SupportsMetrics
from llmops_kernel.providers.dashboard import with_run_states
from llmops_kernel.providers.protocol import (
    ActionPreview,
    ClusterAction,
    ClusterInfo,
    ClusterProvider,
    ClusterSize,
    ClusterState,
    Progress,
)
from llmops_kernel.services.backend import Backend, current
from llmops_kernel.store.store import RunStore

if TYPE_CHECKING:
    from llmops_kernel.jobs.guard import Report as GuardReport


def with_states_of(lines: Sequence[str], *, store: RunStore | None = None) -> tuple[str, ...]:
    """Return a cluster's lines about its jobs; a run that waits in the queue is called queued."""
    kept = store or RunStore()

    def state_of(run_id: str) -> str | None:
        with suppress(LLMOpsError):  # Somebody else's run, or one that was deleted.
            state = view_of(kept, run_id).state
            return None if state in TERMINAL else state.lower()
        return None

    return with_run_states(lines, state_of)


class Cluster:
    """A cluster by its name. Keeps no state: each property and method asks the cluster again."""

    def __init__(
        self, name: str, *, provider: ClusterProvider, backend: Backend | None = None
    ) -> None:
        self.name = name
        self.provider = provider
        self.backend = backend or current()

    @property
    def info(self) -> ClusterInfo:
        """Return state, size, use and reasons for waiting. Raises ClusterNotFoundError."""
        return self.provider.get(self.name)

    def ready_info(self, *, progress: Progress | None = None) -> ClusterInfo:
        """Return the cluster's info, after waiting for it if it is still starting.

        Raises ClusterStateError if only its head runs: work would wait for workers for ever.
        """
        info = self.info
        if info.head_runs:
            raise ClusterStateError(
                f"Cluster {self.name!r} is stopped: {info.message}",
                remedy=f"llmops resume {self.name}",
            )
        if info.state is ClusterState.STARTING:
            return self.provider.wait(self.name, progress=progress)
        return info

    @contextmanager
    def client(self, *, progress: Progress | None = None) -> Iterator[JobsClient]:
        """Yield a client of Ray's job API.

        Raises ClusterDeadError instead of ClusterUnreachableError when the head has died.
        """
        connection = self.provider.connect(self.name)
        try:
            with JobsClient(connection, cluster=self.name, progress=progress) as client:
                yield client
        except ClusterUnreachableError as error:
            info = self.info
            if not info.is_gone:
                raise
            raise ClusterDeadError(
                f"Cluster {self.name!r} is {info.state}: {info.message or error.message}",
                remedy=info.remedy or f"llmops up {self.name}",
            ) from error

    def preview(self, action: ClusterAction | str) -> ActionPreview:
        """Return what `suspend`, `resume`, `scale` or `delete` would stop and keep.

        Outputs that have no other copy are among what it stops.
        """
        action, store = ClusterAction(action), self.backend.store
        preview = self.provider.preview(self.name, action)
        preview = preview.model_copy(update={"stops": with_states_of(preview.stops, store=store)})
        if not self._ends_nodes(action):
            return preview
        if not (lost := only_copies(store, self.name, since_s=self.info.created_s)):
            return preview
        stops = (*preview.stops, *lost)
        return preview.model_copy(update={"stops": stops, "needs_confirmation": True})

    def _ends_nodes(self, action: ClusterAction) -> bool:
        if self.provider.shares_disk:
            return False
        ends = action in (ClusterAction.SUSPEND, ClusterAction.DELETE)
        return ends or self.provider.ends_head(self.name, action)


def read_template(name_or_path: str | Path) -> tuple[AnyTemplate, Path | None]:
    """Return a cluster template and its file; None for a built-in one. Raises ConfigError."""
    path = find_template(name_or_path)
    return load_cluster_template(name_or_path), path.resolve() if path else None


def up(
    template: AnyTemplate,
    *,
    path: Path | None = None,
    wait: bool = True,
    progress: Progress | None = None,
    backend: Backend | None = None,
) -> ClusterInfo:
    """Attach to the template's cluster, or start it. `path` is the template's file.

    Runs that waited when an earlier head of a local cluster was lost are submitted again.
    """
    backend = backend or current()
    provider = backend.provider_for(template)
    began_s = time.time()
    info = provider.up(template, template_path=path, progress=progress, wait=wait)
    if provider.shares_disk and info.is_ready and (info.created_s or 0.0) >= began_s:
        resubmit(Cluster(info.name, provider=provider, backend=backend), progress=progress)
    return info


def resubmit(cluster: Cluster, *, progress: Progress | None = None) -> list[str]:
    """Submit the runs again that waited when the cluster's head was lost; return their ids."""
    with cluster.client() as client:
        return resubmit_waiting(
            cluster.backend.store,
            cluster.ready_info(),
            provider=cluster.provider,
            client=client,
            progress=progress,
        )


def find(name: str, *, backend: Backend | None = None) -> Cluster:
    """Return a known cluster, whatever its state. Raises ClusterNotFoundError."""
    backend = backend or current()
    return Cluster(name, provider=backend.provider_for(name), backend=backend)


def is_ready(name: str, *, backend: Backend | None = None) -> bool:
    """Return whether a cluster of that name is known and ready."""
    infos = (backend or current()).survey().infos
    return any(info.name == name and info.is_ready for info in infos)


# --- What changes a cluster that exists ---


def stop(
    cluster: Cluster, way: Way, *, force: bool = False, progress: Progress | None = None
) -> None:
    """Suspend, stop or delete the cluster, after archiving the journals and logs of its runs.

    Raises HistoryError when they cannot be archived; `force` continues without them.
    """
    provider, store = cluster.provider, cluster.backend.store
    stop_after_archiving(provider, cluster.name, way, store=store, force=force, progress=progress)


def resume(
    cluster: Cluster, *, wait: bool = True, force: bool = False, progress: Progress | None = None
) -> ClusterInfo:
    """Start the cluster again as it was defined.

    Where that ends its head, the runs are archived first. Raises HistoryError when that fails;
    `force` continues without them.
    """
    _archive(cluster, ClusterAction.RESUME, force=force, progress=progress)
    return cluster.provider.resume(cluster.name, progress=progress, wait=wait)


def scale(
    cluster: Cluster,
    size: ClusterSize,
    *,
    wait: bool = True,
    force: bool = False,
    progress: Progress | None = None,
) -> ClusterInfo:
    """Change the cluster's size. Archives as `resume` does.

    Raises ClusterStateError and ConfigError for a size that it cannot have.
    """
    cluster.provider.check_scale(cluster.name, size)
    _archive(cluster, ClusterAction.SCALE, force=force, progress=progress)
    return cluster.provider.scale(cluster.name, size, progress=progress, wait=wait)


def _archive(
    cluster: Cluster, action: ClusterAction, *, force: bool, progress: Progress | None
) -> None:
    provider, store = cluster.provider, cluster.backend.store
    archive_before(provider, cluster.name, action, store=store, force=force, progress=progress)


# --- The idle guard: one check of a cluster's policy, and the action when it is due ---


def watch(name: str, *, backend: Backend | None = None) -> None:
    """Let guards of this user act on a cluster that somebody else made.

    Raises ClusterNotFoundError, ClusterStateError for a cluster whose provider has no idle
    policies.
    """
    from llmops_kernel.providers.capabilities import guard_of

    guard_of((backend or current()).provider_for(name)).watch(name)


def guard_once(name: str, *, force: bool = False, backend: Backend | None = None) -> GuardReport:
    """Check a cluster's idle policy once; suspend or delete the cluster if it is due.

    Any number of guards can run at the same time. Raises ClusterNotFoundError,
    ClusterStateError for a cluster whose provider has no idle policies.
    """
    from llmops_kernel.jobs import guard

    backend = backend or current()
    provider = backend.provider_for(name)
    return guard.guard_once(provider, name, store=backend.store, force=force)


# --- Files for Prometheus and Grafana ---


def scrape_configs(provider: str | None = None, *, backend: Backend | None = None) -> str:
    """Return Prometheus' `scrape_configs` as YAML: a config file, or one of `scrape_config_files`.

    `provider`: `local` or `kuberay`; default: all that can have clusters here. Raises ConfigError
    for another one.
    """
    backend = backend or current()
    providers = [each for each in backend.providers() if isinstance(each, SupportsMetrics)]
    chosen = [each for each in providers if provider in (None, each.name)]
    if not chosen:
        known = ", ".join(each.name for each in providers)
        raise ConfigError(
            f"No provider {provider!r} with metrics here", remedy=f"choose one of: {known}"
        )
    return dump({"scrape_configs": [each.scrape_config() for each in chosen]})


def grafana_dashboard(*, config_map: str = "", namespace: str = "") -> str:
    """Return the dashboard's JSON; with `config_map` a manifest of that name which carries it."""
    if not config_map:
        return dashboard_text()
    return dump(dashboard_manifest(config_map, labels={}, namespace=namespace))
