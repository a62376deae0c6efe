"""Clusters, their templates and what can be done to them, as the browser sees them."""

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
    """The newest that is known; null until its provider has answered for the first time."""
    stale: str = ""
    """Why `info` is not of this moment; empty when it is."""
    remedy: str = ""
    """What to do about that."""
    checked_s: float | None = None
    """When `info` was true, in Unix time."""
    idle_since_s: float | None = None
    """Unix time; null while a job runs, and when it is not known."""
    operation_id: str | None = None
    """The operation that is changing it now."""
    doing: str = ""
    """`up`, `suspend`, `resume`, `scale` or `delete`, while that is under way."""
    progress: str = ""
    """The newest line of that operation."""


class ClusterList(Wire):
    """All clusters at one moment."""

    clusters: list[ClusterRow]
    now_s: float
    """The server's clock, in Unix time: ages are counted from it."""


class TemplateInfo(Wire):
    """A cluster template that a cluster can be made from."""

    name: str
    """What `llmops up` takes."""
    path: str | None = None
    """In Jupyter's file browser; null for one that is built in or lies outside its root."""
    text: str
    """The YAML."""
    problems: tuple[FieldProblem, ...] = ()


class UpBody(Body):
    """What to start: one of the three."""

    template: str | None = Field(default=None, max_length=100)
    """Name of a template of the list."""
    path: str | None = Field(default=None, max_length=4096)
    """Of a template file in Jupyter's file browser."""
    yaml: str | None = Field(default=None, max_length=256 * 1024)
    """A template's text; its `env` is then not on disk for a later resume."""

    @model_validator(mode="after")
    def _one_of_three(self) -> UpBody:
        if sum(value is not None for value in (self.template, self.path, self.yaml)) != 1:
            raise ValueError("give exactly one of template, path and yaml")
        return self


class ScaleBody(Body):
    """New numbers; null leaves one as it is."""

    num_cpus: int | None = Field(default=None, ge=1)
    num_gpus: int | None = Field(default=None, ge=0)
    workers: dict[str, Annotated[int, Field(ge=0, le=10_000)]] = Field(
        default_factory=dict, max_length=100
    )
    """Replicas by worker group; groups that are not named stay as they are."""

    @property
    def is_empty(self) -> bool:
        return self.num_cpus is None and self.num_gpus is None and not self.workers


class KeepBody(Body):
    """How long no idle guard may touch a cluster."""

    for_s: float = Field(ge=0, le=30 * 86400)
    """Seconds from now; 0 takes an earlier wish back."""


class EmptyBody(Body):
    """Nothing to say."""


WIRE_MODELS: tuple[type[BaseModel], ...] = (
    ClusterRow,
    ClusterList,
    ActionPreview,
    TemplateInfo,
    UpBody,
    ScaleBody,
    KeepBody,
)
