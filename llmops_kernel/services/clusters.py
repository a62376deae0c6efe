"""Operations on clusters: start, look up, connect, stop after archiving."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from llmops_kernel.config.models.cluster import AnyTemplate
from llmops_kernel.config.reading.templates import find_template, load_cluster_template
from llmops_kernel.errors import (
    ClusterDeadError,
    ClusterStateError,
    ClusterUnreachableError,
    LLMOpsError,
)
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.history import Way, archive_before, stop_after_archiving
from llmops_kernel.jobs.outputs.loss import only_copies
from llmops_kernel.kinds.registry import view_of
from llmops_kernel.metrics.events import TERMINAL
from llmops_kernel.providers.dashboard.rest import with_run_states
from llmops_kernel.providers.protocol import (
    ActionPreview,
    ClusterAction,
    ClusterInfo,
    ClusterProvider,
    ClusterState,
    Progress,
)
from llmops_kernel.services.backend import Backend, current
from llmops_kernel.store.store import RunStore


def with_states_of(lines: Sequence[str], *, store: RunStore | None = None) -> tuple[str, ...]:
    """Return a cluster's lines about its jobs; a run that waits in the queue is called queued."""
    kept = store or RunStore()

    def state_of(run_id: str) -> str | None:
        with suppress(LLMOpsError):  # Somebody else's run, or one that was deleted.
            state = view_of(kept, run_id).state
            return None if state in TERMINAL else state.lower()
        return None

    return with_run_states(lines, state_of)


class ClusterAccess:
    """One cluster, by its name and its provider. Keeps no answer: each call asks again."""

    def __init__(self, name: str, *, provider: ClusterProvider) -> None:
        self.name = name
        self.provider = provider

    @property
    def info(self) -> ClusterInfo:
        """Return what the provider reports now. Raises ClusterNotFoundError."""
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
            self._raise_if_dead(error)
            raise

    def _raise_if_dead(self, error: ClusterUnreachableError) -> None:
        info = self.info
        if info.is_gone:
            raise ClusterDeadError(
                f"Cluster {self.name!r} is {info.state}: {info.message or error.message}",
                remedy=info.remedy or f"llmops up {self.name}",
            ) from error

    def preview(
        self, action: ClusterAction | str, *, store: RunStore | None = None
    ) -> ActionPreview:
        """Return what an action would stop and keep, and which outputs have no other copy."""
        wanted = ClusterAction(action)
        kept = store or RunStore()
        found = self.provider.preview(self.name, wanted)
        found = found.model_copy(update={"stops": with_states_of(found.stops, store=kept)})
        if not self._ends_nodes(wanted):
            return found
        if not (lost := only_copies(kept, self.name, since_s=self.info.created_s)):
            return found
        stops = (*found.stops, *lost)
        return found.model_copy(update={"stops": stops, "needs_confirmation": True})

    def _ends_nodes(self, action: ClusterAction) -> bool:
        if self.provider.shares_disk:
            return False
        ends = action in (ClusterAction.SUSPEND, ClusterAction.DELETE)
        return ends or self.provider.ends_head(self.name, action)

    def stop(
        self,
        way: Way,
        *,
        store: RunStore | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Suspend, stop or delete the cluster, after archiving the journals and logs of its runs.

        Raises HistoryError when they cannot be archived; `force` continues without them.
        """
        stop_after_archiving(
            self.provider, self.name, way, store=store, force=force, progress=progress
        )

    def resume(
        self,
        *,
        wait: bool = True,
        store: RunStore | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> ClusterInfo:
        """Start the cluster again as it was defined.

        Where that ends its head, the runs are archived first. Raises HistoryError when that
        fails; `force` continues without them.
        """
        self._archive(ClusterAction.RESUME, store=store, force=force, progress=progress)
        return self.provider.resume(self.name, progress=progress, wait=wait)

    def scale(
        self,
        *,
        num_cpus: int | None = None,
        num_gpus: int | None = None,
        workers: Mapping[str, int] | None = None,
        wait: bool = True,
        store: RunStore | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> ClusterInfo:
        """Change the cluster's size; None leaves a number as it is. Archives as `resume` does."""
        self.check_scale(num_cpus=num_cpus, num_gpus=num_gpus, workers=workers)
        self._archive(ClusterAction.SCALE, store=store, force=force, progress=progress)
        return self.provider.scale(
            self.name,
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            workers=workers or None,
            progress=progress,
            wait=wait,
        )

    def check_scale(
        self,
        *,
        num_cpus: int | None = None,
        num_gpus: int | None = None,
        workers: Mapping[str, int] | None = None,
    ) -> None:
        """Raise what `scale` refuses about these numbers. Raises ClusterStateError, ConfigError."""
        self.provider.check_scale(
            self.name, num_cpus=num_cpus, num_gpus=num_gpus, workers=workers or None
        )

    def _archive(
        self,
        action: ClusterAction,
        *,
        store: RunStore | None,
        force: bool,
        progress: Progress | None,
    ) -> None:
        archive_before(
            self.provider, self.name, action, store=store, force=force, progress=progress
        )

    def wait(
        self, *, timeout_s: float | None = None, progress: Progress | None = None
    ) -> ClusterInfo:
        """Block until the cluster is ready. Raises ClusterStartError with the reasons."""
        return self.provider.wait(self.name, timeout_s=timeout_s, progress=progress)

    def keep(self, *, for_s: float) -> ClusterInfo:
        """Keep idle guards from suspending the cluster for `for_s` seconds; 0 ends that."""
        return self.provider.keep(self.name, for_s=for_s)


class ClusterHandle(Protocol):
    """A cluster as a caller holds it, such as `llmops.Cluster`."""

    access: ClusterAccess


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
    """Attach to the template's cluster, or start it. `path` is the template's file."""
    provider = (backend or current()).provider_for(template)
    return provider.up(template, template_path=path, progress=progress, wait=wait)


def find(name: str, *, backend: Backend | None = None) -> ClusterAccess:
    """Return a known cluster, whatever its state. Raises ClusterNotFoundError."""
    return ClusterAccess(name, provider=(backend or current()).provider_for(name))


def is_ready(name: str, *, backend: Backend | None = None) -> bool:
    """Return whether a cluster of that name is known and ready."""
    infos = (backend or current()).survey().infos
    return any(info.name == name and info.is_ready for info in infos)
