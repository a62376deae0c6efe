"""The one seam between our code and whatever runs Ray for us."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from llmops_kernel.config.cluster import ClusterTemplate

Progress = Callable[[str], None]
"""Takes one line of text for people."""


class ClusterState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DEAD = "dead"
    STOPPED = "stopped"


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
    cpus_used: float | None = None
    """Reserved by running work; Ray refreshes it every 5 s."""
    gpus_used: float | None = None
    jobs_running: int | None = None
    """Pending ones too."""
    ray_version: str | None = None
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

    model_config = ConfigDict(frozen=True)

    dashboard_url: str
    token: str | None = Field(default=None, repr=False)

    def headers(self) -> dict[str, str]:
        # Ray looks at `Authorization` first, so a netrc entry cannot get in the way.
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}


class ClusterProvider(Protocol):
    """Keeps no state of its own: clusters are found again by any process."""

    name: str

    def up(self, template: ClusterTemplate, *, progress: Progress | None = None) -> ClusterInfo:
        """Attach to the cluster when it is there, else start it; blocks until it is ready.

        Raises ClusterStartError, ClusterUnreachableError, MissingDependencyError.
        """

    def get(self, name: str) -> ClusterInfo:
        """Raises ClusterNotFoundError when there never was such a cluster."""

    def list(self) -> list[ClusterInfo]:
        """All clusters that this provider knows, also dead and stopped ones, by name."""

    def down(self, name: str) -> None:
        """Stop it. Stopping a stopped or dead one cleans up what is left.

        Raises ClusterNotFoundError when there never was such a cluster.
        """

    def connect(self, name: str) -> Connection:
        """Raises ClusterNotFoundError, ClusterDeadError."""
