"""Clusters, cluster templates and actions on them, as sent to the browser."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from llmops_kernel.providers.protocol import ActionPreview, ClusterInfo
from llmops_kernel.server.wire.common import Body, FieldProblem, Wire


class ClusterRow(Wire):
    """One cluster of the list."""

    name: str
    provider: str
    info: ClusterInfo | None = None
    """The last known state; null until the provider has answered for the first time."""
    stale: str = ""
    """Why `info` may be out of date; empty when it is current."""
    remedy: str = ""
    """What to do about that."""
    checked_s: float | None = None
    """Unix time at which `info` was read."""
    idle_since_s: float | None = None
    """Unix time; null while a job runs, and when it is not known."""
    operation_id: str | None = None
    """Id of the operation that is in progress on this cluster."""
    doing: str = ""
    """`up`, `suspend`, `resume`, `scale` or `delete`, while that is in progress."""
    progress: str = ""
    """The newest progress line of that operation."""


class ClusterList(Wire):
    """All clusters at one time."""

    clusters: list[ClusterRow]
    now_s: float
    """The server's clock, in Unix time: ages are counted from it."""


class TemplateInfo(Wire):
    """A cluster template to create a cluster from."""

    name: str
    """Name or path to pass to `llmops up`."""
    path: str | None = None
    """Path in Jupyter's file browser; null for a built-in one and outside its root folder."""
    text: str
    """The YAML."""
    problems: tuple[FieldProblem, ...] = ()


class UpBody(Body):
    """The template to start: exactly one of the three fields."""

    template: str | None = Field(default=None, max_length=100)
    """Name of a template of the list."""
    path: str | None = Field(default=None, max_length=4096)
    """Path of a template file in Jupyter's file browser."""
    yaml: str | None = Field(default=None, max_length=256 * 1024)
    """Text of a template; its `env` is not stored, so a later resume does not have it."""

    @model_validator(mode="after")
    def _one_of_three(self) -> UpBody:
        if sum(value is not None for value in (self.template, self.path, self.yaml)) != 1:
            raise ValueError("give exactly one of template, path and yaml")
        return self


class ScaleBody(Body):
    """New sizes; null keeps the current value."""

    num_cpus: int | None = Field(default=None, ge=1)
    num_gpus: int | None = Field(default=None, ge=0)
    workers: dict[str, Annotated[int, Field(ge=0, le=10_000)]] = Field(
        default_factory=dict, max_length=100
    )
    """Replicas by worker group; groups that are not named keep theirs."""

    @property
    def is_empty(self) -> bool:
        return self.num_cpus is None and self.num_gpus is None and not self.workers


class KeepBody(Body):
    """How long idle guards do not suspend or delete a cluster."""

    for_s: float = Field(ge=0, le=30 * 86400)
    """Seconds from now; 0 ends it."""


class EmptyBody(Body):
    """An empty request."""


WIRE_MODELS: tuple[type[BaseModel], ...] = (
    ClusterRow,
    ClusterList,
    ActionPreview,
    TemplateInfo,
    UpBody,
    ScaleBody,
    KeepBody,
)
