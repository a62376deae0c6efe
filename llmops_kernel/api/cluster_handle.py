"""A cluster as the user holds it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmops_kernel.api.surroundings import default_progress
from llmops_kernel.clusters.provider import (
    ActionPreview,
    ClusterAction,
    ClusterInfo,
    ClusterProvider,
    ClusterState,
    Progress,
)
from llmops_kernel.config.load import load_training_config, training_config_from_dict
from llmops_kernel.config.overrides import Overrides
from llmops_kernel.config.train import TrainingConfig
from llmops_kernel.errors import ClusterDeadError, ClusterUnreachableError
from llmops_kernel.jobs.client import Job, JobsClient
from llmops_kernel.jobs.history import Way, put_away
from llmops_kernel.jobs.submit import submit_run
from llmops_kernel.runs.store import RunStore

if TYPE_CHECKING:
    from llmops_kernel.api.lists import RunList
    from llmops_kernel.api.run_handle import Run

ConfigLike = TrainingConfig | Mapping[str, Any] | str | Path


class Cluster:
    """Holds nothing but a name; each answer is asked for anew."""

    def __init__(self, name: str, *, provider: ClusterProvider) -> None:
        self.name = name
        self._provider = provider

    @property
    def info(self) -> ClusterInfo:
        return self._provider.get(self.name)

    @property
    def dashboard_url(self) -> str | None:
        """Ray's own dashboard; it asks for the cluster's token."""
        return self.info.dashboard_url

    def status(self) -> str:
        """For people: state, nodes, CPUs, GPUs, jobs, dashboard."""
        return describe(self.info)

    def submit(
        self,
        config: ConfigLike,
        *,
        workspace: Path | str | None = None,
        overrides: Overrides = (),
        **settings: Any,
    ) -> Run:
        """Submit a training run and return as soon as Ray has taken it.

        `config` is a `*.train.yaml` file, a dict or a `TrainingConfig`. Changes come as
        keywords (`learning_rate=1e-4`, `method="full"`) or as
        `overrides=["optimizer.learning_rate=1e-4"]`. `workspace` is the folder of code and
        data that travels along and in which relative paths begin; default the folder of
        the config file, else the current folder. Raises ConfigError with all mistakes at
        once, before anything is started or written.
        """
        path = Path(config) if isinstance(config, str | Path) else None
        changes = combined(overrides, settings)
        loaded = load(config, changes)
        root = Path(workspace) if workspace else path.resolve().parent if path else Path.cwd()
        return self.submit_config(
            loaded,
            workspace=root,
            config_path=_shown_path(path, root),
            overrides=as_mapping(changes),
        )

    def submit_config(
        self,
        config: TrainingConfig,
        *,
        workspace: Path,
        config_path: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        parent: str | None = None,
    ) -> Run:
        """The last step of `submit`, for a config that is resolved already."""
        from llmops_kernel.api.run_handle import Run

        store = RunStore()
        info = self._ready_info()
        with self.client() as client:
            record, _ = submit_run(
                store=store,
                cluster=info,
                client=client,
                config=config,
                workspace=workspace,
                config_path=config_path,
                overrides=overrides,
                parent=parent,
            )
        return Run(store, record.run_id, provider=self._provider)

    def _ready_info(self) -> ClusterInfo:
        """One that is starting is waited for, with progress."""
        info = self.info
        if info.state is ClusterState.STARTING:
            return self._provider.wait(self.name, progress=default_progress())
        return info

    @contextmanager
    def client(self) -> Iterator[JobsClient]:
        """Ray's job interface. A dashboard that is silent because its head died is told so."""
        connection = self._provider.connect(self.name)
        try:
            with JobsClient(connection, cluster=self.name) as client:
                yield client
        except ClusterUnreachableError as error:
            info = self.info
            if info.state in (ClusterState.DEAD, ClusterState.STOPPED):
                raise ClusterDeadError(
                    f"Cluster {self.name!r} is {info.state}: {info.message or error.message}",
                    remedy=info.remedy or f"llmops up {self.name}",
                ) from error
            raise

    def jobs(self) -> list[Job]:
        """What Ray itself says of its jobs, newest first."""
        with self.client() as client:
            return client.list()

    def runs(self, *, limit: int | None = 20) -> RunList:
        """Runs that were submitted to this cluster, newest first."""
        from llmops_kernel.api.lists import RunList

        store = RunStore()
        return RunList(store, store.list(cluster=self.name, limit=limit))

    def down(self, *, force: bool = False) -> None:
        """Stop exactly this cluster's processes. Runs and their journals stay on disk."""
        self._put_away("down", force=force)

    def preview(self, action: ClusterAction | str) -> ActionPreview:
        """What `suspend`, `resume`, `scale` or `delete` would stop and keep."""
        return self._provider.preview(self.name, ClusterAction(action))

    def suspend(self, *, force: bool = False) -> None:
        """Stop its processes and keep its definition; `resume` starts it again.

        Journals and logs of its runs are brought home first, where they are only on the cluster.
        Raises HistoryError when that fails; `force` goes on without. So do `down` and `delete`.
        """
        self._put_away("suspend", force=force)

    def resume(self, *, wait: bool = False, progress: Progress | None = None) -> Cluster:
        """Start it again as it was defined; like `llmops.up`, waits for local ones only."""
        told = progress or default_progress()
        self._provider.resume(self.name, progress=told, wait=wait)
        return self

    def scale(
        self,
        *,
        num_cpus: int | None = None,
        num_gpus: int | None = None,
        workers: Mapping[str, int] | None = None,
        wait: bool = False,
        progress: Progress | None = None,
    ) -> Cluster:
        """Give it other numbers; on Kubernetes returns at once unless `wait`.

        A local cluster takes `num_cpus` and `num_gpus`, and is restarted, which stops what runs
        on it. One on Kubernetes takes replicas of its worker groups: `workers={"h100": 4}`.
        """
        self._provider.scale(
            self.name,
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            workers=workers,
            progress=progress or default_progress(),
            wait=wait,
        )
        return self

    def wait(self, *, timeout_s: float | None = None, progress: Progress | None = None) -> Cluster:
        """Block until it is ready, and tell meanwhile what it waits for.

        Raises ClusterStartError with the reasons when the time is up or waiting alone will not
        help.
        """
        told = progress or default_progress()
        self._provider.wait(self.name, timeout_s=timeout_s, progress=told)
        return self

    def keep(self, *, for_s: float) -> Cluster:
        """No idle guard touches it for so long from now; 0 takes that back."""
        self._provider.keep(self.name, for_s=for_s)
        return self

    def delete(self, *, force: bool = False) -> None:
        """Stop it and forget it, with its logs. Runs and their journals stay on disk."""
        self._put_away("delete", force=force)

    def _put_away(self, way: Way, *, force: bool) -> None:
        put_away(self._provider, self.name, way, force=force, tell=default_progress())

    def __repr__(self) -> str:
        return f"<Cluster {describe(self.info)}>"

    def _repr_html_(self) -> str:
        return describe_html(self.info)


def describe(info: ClusterInfo, *, with_url: bool = True) -> str:
    """`local: ready, 1 node, 2 CPUs, 0 GPUs, 1 job, warm, http://127.0.0.1:8265`."""
    parts = [f"{info.name}: {info.state}"]
    if info.is_ready:
        counts = {"node": info.num_nodes, "CPU": info.num_cpus, "GPU": info.num_gpus}
        counts["job"] = info.jobs_running
        parts += [_counted(noun, count) for noun, count in counts.items() if count is not None]
        if info.warm:
            told = info.warm.startswith(("warm", "cold"))
            parts.append(info.warm if told else f"fork server {info.warm}")
    elif info.message:
        parts.append(info.message)
    if info.workers_wanted and info.workers_ready != info.workers_wanted:
        parts.insert(1, f"{info.workers_ready or 0} of {info.workers_wanted} workers")
    if with_url and info.is_ready and info.dashboard_url and info.context is None:
        parts.append(info.dashboard_url)
    return ", ".join(parts)


def describe_html(info: ClusterInfo) -> str:
    # Behind a Kubernetes API server the address wants credentials that no browser has.
    url = info.dashboard_url if info.context is None else None
    link = f', <a href="{escape(url)}" target="_blank">dashboard</a>' if url else ""
    return f"Cluster <b>{escape(describe(info, with_url=False))}</b>{link}"


def _counted(noun: str, count: float) -> str:
    return f"{count:g} {noun}{'' if count == 1 else 's'}"


def load(config: ConfigLike, changes: Overrides) -> TrainingConfig:
    """Raises ConfigError with all mistakes at once."""
    if isinstance(config, str | Path):
        return load_training_config(config, changes)
    data = config.model_dump(mode="json") if isinstance(config, TrainingConfig) else config
    return training_config_from_dict(data, changes)


def combined(overrides: Overrides, settings: Mapping[str, Any]) -> Overrides:
    """Both kinds as one; a keyword wins over an override of the same field."""
    if not settings:
        return overrides
    if not overrides:
        return settings
    if isinstance(overrides, Mapping):
        return {**overrides, **settings}
    # JSON is YAML, as which an override's value is read.
    return [*overrides, *(f"{key}={json.dumps(value)}" for key, value in settings.items())]


def as_mapping(overrides: Overrides) -> dict[str, Any]:
    """For the record: what was changed, as it was written."""
    if isinstance(overrides, Mapping):
        return dict(overrides)
    parts = (text.partition("=") for text in overrides)
    return {key.strip(): value.strip() for key, _, value in parts}


def _shown_path(path: Path | None, root: Path) -> str | None:
    if path is None:
        return None
    resolved, root = path.resolve(), root.resolve()
    return str(resolved.relative_to(root)) if resolved.is_relative_to(root) else str(resolved)
