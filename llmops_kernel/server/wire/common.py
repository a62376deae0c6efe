"""Models that all features share: problems, operations, the handshake."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from llmops_kernel.errors import ConfigError, LLMOpsError

PROTOCOL = 1
"""Counts up when an older front end would misread an answer."""


class Wire(BaseModel):
    """Sent to the browser. Every field is always present; unknown is null."""

    model_config = ConfigDict(frozen=True)


class Body(BaseModel):
    """Sent by the browser; unknown fields are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FieldProblem(Wire):
    """One mistake of a config."""

    path: str
    """Dotted path of the field."""
    message: str
    value: str = ""
    """As it was written, in one short line; empty when there is none."""
    suggestion: str = ""
    line: int | None = None
    """Of the file it came from, from 1."""


class Trouble(Wire):
    """What happened and what to do about it."""

    message: str
    remedy: str = ""
    problems: list[FieldProblem] = []


class Handshake(Wire):
    """The answer to the first request of a page."""

    version: str
    """Version of llmops-kernel on the server."""
    protocol: int
    home: str
    """Folder of the runs."""
    root: str
    """Jupyter's root folder."""
    dashboard_writable: bool


class OperationInfo(Wire):
    """A long-running operation, such as a cluster start or a submission."""

    id: str
    kind: str
    """`up`, `submit`, `delete` ..."""
    what: str
    """Name of the cluster, or id of the run."""
    state: Literal["running", "done", "failed"]
    lines: list[str] = []
    """Progress, oldest first; the newest twenty."""
    started_s: float
    ended_s: float | None = None
    result: dict[str, Any] = {}
    trouble: Trouble | None = None


def trouble(error: LLMOpsError) -> Trouble:
    """A ConfigError with each of its problems."""
    config_problems = error.problems if isinstance(error, ConfigError) else ()
    problems = [
        FieldProblem(
            path=item.path,
            message=item.message,
            value=item.shown,
            suggestion=item.suggestion,
            line=item.line,
        )
        for item in config_problems
    ]
    return Trouble(message=error.message, remedy=error.remedy, problems=problems)


WIRE_MODELS: tuple[type[BaseModel], ...] = (FieldProblem, Trouble, Handshake, OperationInfo)
