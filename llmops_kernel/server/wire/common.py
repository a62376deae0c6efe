"""What all features send: troubles, operations, the first request's answer."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from llmops_kernel.errors import ConfigError, LLMOpsError

PROTOCOL = 1
"""Counts up when an older front end would misread an answer."""


class Wire(BaseModel):
    """Goes to the browser. Every field is always there; unknown is null."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Body(BaseModel):
    """Comes from the browser; a field that nobody knows is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


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
    """Of the server's llmops-kernel."""
    protocol: int
    home: str
    """Where runs lie."""
    root: str
    """Jupyter's root folder."""
    dashboard_writable: bool


class OperationInfo(Wire):
    """Something that takes a while: a cluster's start, a submission."""

    id: str
    kind: str
    """`up`, `submit`, `delete` ..."""
    what: str
    """The cluster or run that it is about."""
    state: Literal["running", "done", "failed"]
    lines: list[str] = []
    """Progress, oldest first; the newest twenty."""
    started_s: float
    ended_s: float | None = None
    result: dict[str, Any] = {}
    trouble: Trouble | None = None


def trouble(error: LLMOpsError) -> Trouble:
    """A ConfigError with each of its problems."""
    found = error.problems if isinstance(error, ConfigError) else ()
    problems = [
        FieldProblem(
            path=item.path,
            message=item.message,
            value=item.shown,
            suggestion=item.suggestion,
            line=item.line,
        )
        for item in found
    ]
    return Trouble(message=error.message, remedy=error.remedy, problems=problems)


WIRE_MODELS: tuple[type[BaseModel], ...] = (FieldProblem, Trouble, Handshake, OperationInfo)
