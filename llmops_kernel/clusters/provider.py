"""The one seam between our code and whatever runs Ray for us."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from llmops_kernel.config.cluster import AnyTemplate

Progress = Callable[[str], None]
"""Takes one line of text for people."""


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


@runtime_checkable
class Route(Protocol):
    """Stands between a client and a dashboard: credentials of its own, its own certificates."""

    def auth(self) -> Any:
        """An `httpx.Auth` (sync and async) that renews its credentials; None without any."""

    def verify(self) -> Any:
        """For httpx's `verify`: a context with the authorities and client certificate, or True."""

    def proxy(self) -> str | None:
        """An HTTP proxy on the way."""

    def describe(self) -> str:
        """For errors: `the service proxy of context gcp-us`."""


class ActionPreview(BaseModel):
    """What an action would do to a cluster, told before it is done."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    cluster: str
    action: ClusterAction
    summary: str
    """One sentence for people."""
    stops: tuple[str, ...] = ()
    """Running runs, other jobs, nodes and processes. What cannot be known is told as such."""
    keeps: tuple[str, ...] = ()
    """What is still there afterwards."""
    needs_confirmation: bool = False
    """True when work or files are lost, or when that cannot be known."""


class Waiting(BaseModel):
    """One reason why a cluster is not as it was asked for."""

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
    """One worker group: how many replicas there are and may be."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    name: str
    replicas: int
    """As asked for."""
    ready: int | None = None
    """Pods that are ready."""
    min_replicas: int | None = None
    max_replicas: int | None = None


class ClusterInfo(BaseModel):
    """What any provider can say about a cluster; `None` is unknown, never a guess."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    name: str
    provider: str
    state: ClusterState
    message: str = ""
    """For people: why it is in this state, or what is odd about it."""
    remedy: str = ""
    dashboard_url: str | None = None
    ray_address: str | None = None
    """`host:port` of the GCS, as `RAY_ADDRESS` wants it."""
    created_s: float | None = None
    num_nodes: int | None = None
    num_cpus: float | None = None
    num_gpus: float | None = None
    memory_bytes: int | None = None
    """Main memory of the hosts of all nodes."""
    memory_used_bytes: int | None = None
    """Of it what is not available, by whomever it is used."""
    cpus_used: float | None = None
    """Reserved by running work; Ray refreshes it every 5 s."""
    gpus_used: float | None = None
    jobs_running: int | None = None
    """Pending ones too."""
    jobs_total: int | None = None
    """All that Ray remembers since the cluster's start, ended ones too."""
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
    workers_ready: int | None = None
    """Worker pods that are ready; None for a local cluster."""
    workers_wanted: int | None = None
    groups: tuple[GroupInfo, ...] = ()
    """Worker groups, which `scale` gives other numbers; empty for a local cluster."""
    waiting: tuple[Waiting, ...] = ()
    """Why it is not as it was asked for, the most telling reason first."""
    suspends_at_s: float | None = None
    """Unix time at which the idle guard suspends it if nothing runs until then."""
    ends_at_s: float | None = None
    """Unix time at which its time to live is over."""
    kept_until_s: float | None = None
    """Somebody asked that it be left alone until then."""
    is_adopted: bool = False
    """Made by others: kubectl, CI, a pipeline."""
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
    log_tail: str = ""
    """Last lines of the logs of a cluster that died or would not start."""

    @property
    def is_ready(self) -> bool:
        return self.state is ClusterState.READY


class Connection(BaseModel):
    """Where a cluster's dashboard is and what opens it."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    dashboard_url: str
    token: str | None = Field(default=None, repr=False)
    route: Route | None = Field(default=None, repr=False)
    """How to get there when plain HTTP does not."""

    def headers(self) -> dict[str, str]:
        if self.token is None:
            return {}
        # Ray looks at `Authorization` first, so a netrc entry cannot get in the way. On a route
        # that header belongs to whoever stands between (the Kubernetes API server).
        name = "Authorization" if self.route is None else "X-Ray-Authorization"
        return {name: f"Bearer {self.token}"}


class ClusterProvider(Protocol):
    """Keeps no state of its own: clusters are found again by any process."""

    name: str

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
        """Raises ClusterNotFoundError when there never was such a cluster."""

    def names(self) -> tuple[str, ...]:
        """Of all clusters that this provider knows; asks none of them."""

    def list(self) -> list[ClusterInfo]:
        """All clusters that this provider knows, also dead and stopped ones, by name."""

    def down(self, name: str) -> None:
        """Stop it. Stopping a stopped or dead one cleans up what is left.

        Raises ClusterNotFoundError when there never was such a cluster.
        """

    def preview(self, name: str, action: ClusterAction) -> ActionPreview:
        """What the action would stop and keep. Raises ClusterNotFoundError, ClusterStateError."""

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
        *,
        num_cpus: int | None = None,
        num_gpus: int | None = None,
        workers: Mapping[str, int] | None = None,
        progress: Progress | None = None,
        wait: bool = True,
    ) -> ClusterInfo:
        """Give it other numbers; None leaves one as it is. Blocks until it is ready if `wait`.

        Raises ClusterNotFoundError, ClusterStateError, ConfigError, and what `up` raises.
        """

    def delete(self, name: str) -> None:
        """Stop it and forget it, with its logs; runs stay. Raises ClusterNotFoundError."""

    def wait(
        self, name: str, *, timeout_s: float | None = None, progress: Progress | None = None
    ) -> ClusterInfo:
        """Block until it is ready, and tell why it is not each time that changes.

        Raises ClusterNotFoundError, ClusterDeadError, and ClusterStartError with the reasons
        when the time is up or waiting alone will not help.
        """

    def keep(self, name: str, *, for_s: float) -> ClusterInfo:
        """No idle guard touches it for so long from now; 0 takes that back.

        Raises ClusterNotFoundError, ClusterStateError.
        """

    def connect(self, name: str) -> Connection:
        """Raises ClusterNotFoundError, ClusterDeadError."""
