"""The interface of everything that starts and stops Ray clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from llmops_kernel.config.models.cluster import AnyTemplate
from llmops_kernel.errors import LLMOpsError


class KeptInfo(BaseModel):
    """A loaded model that later runs of this machine map into memory instead of reading it."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    model: str
    """As the config names it."""
    dtype: str
    """Of the run's config; `tokenizer` if it is only that, in the fork server's memory."""
    num_bytes: int
    """Of its file; of a tokenizer, an estimate of its memory."""
    used_s: float
    """Unix time at which a run last used it."""


Progress = Callable[[str], None]
"""Takes one line of readable text."""


class ClusterState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    DEAD = "dead"
    STOPPED = "stopped"


class ClusterAction(StrEnum):
    SUSPEND = "suspend"
    RESUME = "resume"
    SCALE = "scale"
    DELETE = "delete"


@dataclass(frozen=True, kw_only=True)
class ClusterSize:
    """The size that `scale` gives a cluster; None leaves a number as it is."""

    num_cpus: int | None = None
    """CPUs and GPUs that Ray may use on a local cluster."""
    num_gpus: int | None = None
    workers: Mapping[str, int] | None = None
    """Worker group -> replicas, of a cluster that has groups."""


@runtime_checkable
class Route(Protocol):
    """How a client reaches a dashboard: with its own credentials and certificates."""

    def auth(self) -> Any:
        """Return an `httpx.Auth` (sync and async) that renews its credentials; None without any."""

    def verify(self) -> Any:
        """Return httpx's `verify`: a context with authorities and client certificate, or True."""

    def proxy(self) -> str | None:
        """Return the HTTP proxy on the route, if any."""

    def describe(self) -> str:
        """Return a description for errors: `the service proxy of context gcp-us`."""


class ActionPreview(BaseModel):
    """What an action would do to a cluster, computed before it is done."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    cluster: str
    action: ClusterAction
    summary: str
    """One sentence for people."""
    stops: tuple[str, ...] = ()
    """Running runs, other jobs, nodes and processes. What is unknown is named as unknown."""
    keeps: tuple[str, ...] = ()
    """What is kept."""
    needs_confirmation: bool = False
    """True when work or files are lost, or when that cannot be known."""


UNASKED: Final = "unasked"
"""Kind of a reason that only says that the real ones were not answered in time: look again."""


class Waiting(BaseModel):
    """One reason why a cluster is not in the state that was asked for."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    message: str
    """One sentence with the numbers: what waits, for what, and why."""
    remedy: str = ""
    """What to do about it."""
    kind: str = ""
    """For machines: `quota`, `capacity`, `image`, `volume`, `operator`, `permission`, ..."""
    is_stuck: bool = False
    """True when waiting alone will not end it."""


class GroupInfo(BaseModel):
    """One worker group: how many replicas there are and may be, and their pods."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    name: str
    replicas: int
    """As requested; `scale` and the bounds count these."""
    hosts: int = 1
    """Pods of one replica (`numOfHosts` of a RayCluster)."""
    pods: int
    """Pods of all replicas."""
    ready: int | None = None
    """Pods that are ready."""
    min_replicas: int | None = None
    max_replicas: int | None = None


class EngineInfo(BaseModel):
    """A model that a score run or a chat has loaded; it stays for the next one for a while.

    What could not be read is None or empty.
    """

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    name: str
    """Of its actor in Ray."""
    replica: int | None = None
    """Counted from 0."""
    node_id: str = ""
    model: str = ""
    """Folder or hub id."""
    engine: str = ""
    """`vllm`, `transformers` or the class of an engine of the user's."""
    state: Literal["loading", "busy", "idle", ""] = ""
    num_gpus: float | None = None
    """GPUs that Ray reserves for it; 0: it computes on CPUs, of which Ray reserves none."""
    gpu_ids: tuple[str, ...] = ()
    run: str = ""
    """Id of the run that uses it, or used it last."""
    idle_since_s: float | None = None
    """Unix time; None while it has work."""
    leaves_at_s: float | None = None
    """Unix time at which it ends and frees its memory, unless it is used until then."""


class ClusterInfo(BaseModel):
    """State and figures of a cluster; `None` is unknown, never a guess."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    name: str
    provider: str
    state: ClusterState
    message: str = ""
    """A readable text: why it is in this state, or what is unusual about it."""
    remedy: str = ""
    head_runs: bool = False
    """True for a stopped cluster of which only the workers are gone: jobs and journals live on."""
    dashboard_url: str | None = None
    runs_url: str | None = None
    """The dashboard of its runs in the team's Grafana, if the template names that."""
    ray_address: str | None = None
    """`host:port` of the GCS, as `RAY_ADDRESS` wants it."""
    created_s: float | None = None
    num_nodes: int | None = None
    num_cpus: float | None = None
    num_gpus: float | None = None
    memory_bytes: int | None = None
    """Main memory of the hosts of all nodes."""
    memory_used_bytes: int | None = None
    """Main memory in use, by any process of these hosts."""
    cpus_used: float | None = None
    """Reserved by running work; Ray refreshes it every 5 s."""
    gpus_used: float | None = None
    jobs_running: int | None = None
    """Pending ones too."""
    jobs_total: int | None = None
    """All that Ray remembers since the cluster's start, ended ones too."""
    running: tuple[str, ...] | None = None
    """What these are, the newest first, each run with its user: `run lora-1 of ann (running)`."""
    idle_s: float | None = None
    """Since the last job ended, or since the cluster was ready when none ran; None while one
    runs."""
    actions: dict[ClusterAction, str] = {}
    """What its provider can do to it now: empty text, or the reason why not."""
    ray_version: str | None = None
    context: str | None = None
    """kubeconfig context; None for a local cluster."""
    namespace: str | None = None
    queue: str | None = None
    """Kueue's LocalQueue."""
    image: str | None = None
    run_storage: str | None = None
    """Folder or bucket for what runs write, which outlives the cluster; None: its nodes' disks."""
    workers_ready: int | None = None
    """Worker pods that are ready; None for a local cluster."""
    workers_wanted: int | None = None
    groups: tuple[GroupInfo, ...] = ()
    """Worker groups, which `scale` gives other numbers; empty for a local cluster."""
    most_resources: dict[str, float] | None = None
    """What Ray's autoscaler can bring it to, by Ray's names: `{"CPU": 24, "GPU": 8}`; None: no
    autoscaler resizes it."""
    waiting: tuple[Waiting, ...] = ()
    """Why it is not in the state that was asked for, the most important reason first."""
    suspends_at_s: float | None = None
    """Unix time at which the idle guard suspends it if nothing runs until then."""
    ends_at_s: float | None = None
    """Unix time at which its time to live expires."""
    kept_until_s: float | None = None
    """Unix time until which no idle guard acts on it (`llmops keep`)."""
    is_adopted: bool = False
    """Created by other tools: kubectl, CI, a pipeline."""
    created_by: str = ""
    """`user@host` of the `llmops up` that created it, as it said itself."""
    chosen: str = ""
    """Why this context was chosen, and not the others of its template."""
    warm: str = ""
    """`warm`, `starting`, `off (why)` or `cold: why`: how processes of jobs start; empty when the
    cluster does not live or cannot be asked."""
    warm_modules: int | None = None
    """Modules that the head's fork server has loaded."""
    warm_missing: tuple[str, ...] = ()
    """Modules that it could not load, each with the reason."""
    warm_forked: int | None = None
    """Processes forked by the server that runs now."""
    warm_cold_starts: int | None = None
    """Processes that were started cold on the head's node since the cluster's start."""
    warm_cold_reason: str = ""
    """Why the newest of them was."""
    warm_kept: tuple[KeptInfo, ...] = ()
    """Loaded models that this machine keeps for later runs, the last used first."""
    engines: tuple[EngineInfo, ...] | None = None
    """Models that score runs and chats have loaded; None: not known."""
    log_tail: str = ""
    """Last lines of the logs of a cluster that died or would not start."""

    @property
    def is_ready(self) -> bool:
        return self.state is ClusterState.READY

    @property
    def is_unasked(self) -> bool:
        """Return whether why it waits was not answered in time."""
        return bool(self.waiting) and self.waiting[0].kind == UNASKED

    @property
    def is_gone(self) -> bool:
        """Return whether nothing of it runs, so that what only its head had is gone too."""
        is_over = self.state in (ClusterState.DEAD, ClusterState.STOPPED)
        return is_over and not self.head_runs


class Connection(BaseModel):
    """Where a cluster's dashboard is, and the token and route to reach it."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    dashboard_url: str
    token: str | None = Field(default=None, repr=False)
    route: Route | None = Field(default=None, repr=False)
    """How to reach the dashboard if plain HTTP does not."""

    def headers(self) -> dict[str, str]:
        if self.token is None:
            return {}
        # Ray reads `Authorization` first, so a netrc entry cannot interfere. On a route, that
        # header belongs to the gateway (the Kubernetes API server).
        name = "Authorization" if self.route is None else "X-Ray-Authorization"
        return {name: f"Bearer {self.token}"}


@dataclass(frozen=True)
class Survey:
    """Clusters, and the errors of the namespaces or machines that could not be asked."""

    infos: tuple[ClusterInfo, ...]
    errors: tuple[LLMOpsError, ...] = ()
    silent: tuple[str, ...] = ()
    """Providers of which nothing at all could be listed, so that the list says nothing of them."""


@dataclass(frozen=True)
class JobLogs:
    """Where the driver log of a job may be on this machine; the files need not exist."""

    live: Path | None = None
    """The file while the cluster runs."""
    kept: Path | None = None
    """The file after the job has ended."""


class ClusterProvider(Protocol):
    """Starts, lists and stops Ray clusters of one kind.

    Keeps no state of its own: any process finds the clusters again. A provider inherits from
    this class, so that what it leaves out has a default, and is registered in `registry.py`.
    What only some providers can do is in `capabilities.py`.
    """

    name: str
    shares_disk: bool = False
    """Whether processes of a run write straight into the run folder of this machine."""

    def __init__(self, home: Path | None = None) -> None:
        """`home` holds this user's state; default the usual folder."""

    @property
    def is_used(self) -> bool:
        """Whether clusters were made with it here, so that its errors concern this user."""
        return True

    def locate(self, name: str) -> bool:
        """Return whether it has a cluster of that name, also one that `names` does not list yet.

        Raises an LLMOpsError when that cannot be known.
        """
        return name in self.names()

    def survey(self) -> Survey:
        """Return all clusters, and the errors of what could not be asked."""
        return Survey(tuple(self.list()))

    def ends_head(self, name: str, action: ClusterAction) -> bool:
        """Return whether the head, and what only it has, is lost although the cluster lives on.

        A queue may delete all pods when the number of workers changes. Raises
        ClusterNotFoundError.
        """
        return False

    def head_is_gone(self, name: str) -> bool:
        """Return whether the head no longer runs, so that what only it had is lost already."""
        return False

    def template(self, name: str) -> AnyTemplate | None:
        """Return the template that a cluster was made from; None where it has not kept it."""
        return None

    def job_logs(self, name: str, submission_id: str) -> JobLogs:
        """Return where a job's driver log may be on this machine."""
        return JobLogs()

    def up(
        self,
        template: AnyTemplate,
        *,
        template_path: Path | None = None,
        progress: Progress | None = None,
        wait: bool = True,
    ) -> ClusterInfo:
        """Attach to the cluster when it is there, else start it; blocks until it is ready.

        `wait=False` returns as soon as it has been asked for, where a start takes minutes.

        `template_path` is the file that the template was read from: `resume` reads `env` there
        again. Raises ClusterStartError, ClusterUnreachableError, MissingDependencyError.
        """

    def get(self, name: str) -> ClusterInfo:
        """Return the cluster's info.

        Raises ClusterNotFoundError if there never was such a cluster.
        """

    def names(self) -> tuple[str, ...]:
        """Return the names of all clusters that this provider knows; asks none of the clusters."""

    def list(self) -> list[ClusterInfo]:
        """Return all clusters that this provider knows, dead and stopped ones too, by name."""

    def down(self, name: str) -> None:
        """Stop it. Stopping a stopped or dead one cleans up what is left.

        Raises ClusterNotFoundError when there never was such a cluster.
        """

    def preview(self, name: str, action: ClusterAction) -> ActionPreview:
        """Return what the action would stop and keep.

        Raises ClusterNotFoundError, ClusterStateError.
        """

    def suspend(self, name: str) -> None:
        """Stop its processes and keep its definition. Raises ClusterNotFoundError."""

    def resume(
        self, name: str, *, progress: Progress | None = None, wait: bool = True
    ) -> ClusterInfo:
        """Start it again from its recorded definition; blocks until it is ready if `wait`.

        Raises ClusterNotFoundError, and what `up` raises.
        """

    def scale(
        self,
        name: str,
        size: ClusterSize,
        *,
        progress: Progress | None = None,
        wait: bool = True,
    ) -> ClusterInfo:
        """Change the cluster's size; blocks until it is ready if `wait`.

        Raises ClusterNotFoundError, ClusterStateError, ConfigError, and what `up` raises.
        """

    def check_scale(self, name: str, size: ClusterSize) -> None:
        """Raise what `scale` refuses about this size, before anybody is asked to confirm it.

        Raises ClusterNotFoundError, ClusterStateError, ConfigError.
        """

    def delete(self, name: str) -> None:
        """Stop it and delete its definition and logs. Raises ClusterNotFoundError."""

    def wait(
        self, name: str, *, timeout_s: float | None = None, progress: Progress | None = None
    ) -> ClusterInfo:
        """Block until it is ready, and report why it is not each time that changes.

        Raises ClusterNotFoundError, ClusterDeadError, and ClusterStartError with the reasons
        when the time is up or it cannot become ready without a change.
        """

    def keep(self, name: str, *, for_s: float) -> ClusterInfo:
        """Keep idle guards from acting on it for so long from now; 0 ends that.

        Raises ClusterNotFoundError, ClusterStateError.
        """

    def connect(self, name: str) -> Connection:
        """Connect to the cluster. Raises ClusterNotFoundError, ClusterDeadError."""
