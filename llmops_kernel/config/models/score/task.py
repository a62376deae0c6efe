"""What the model is asked to do with each row."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from llmops_kernel.config.models.section import Section

TaskType = Literal["generate", "classify", "json", "logprob", "embed"]


class Task(Section):
    """What the model is asked to do with each row."""

    shorthand: ClassVar[str | None] = "type"

    type: TaskType = "generate"
    """`generate` text; `classify`: one of `choices`; `json`: an object of `json_schema`; `logprob`:
    how probable the reference is as the answer, or the prompt itself where no reference is named;
    `embed`: a vector."""
    choices: tuple[str, ...] = ()
    """The answers of `classify`."""
    json_schema: dict[str, Any] | None = None
    """JSON schema of the answers of `json`."""


class Sampling(Section):
    """How the next token is chosen."""

    temperature: float = Field(default=0.0, ge=0)
    """0: always the most probable token."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Choose among the most probable tokens that have this probability together."""
    top_k: int | None = Field(default=None, ge=1)
    """Choose among this many most probable tokens."""
    max_tokens: int = Field(default=256, ge=1)
    """Longest answer, in tokens."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer; they are not part of it."""
    seed: int = 0
    """Seed of the random choice; each row has its own, made from it and the row's number."""
