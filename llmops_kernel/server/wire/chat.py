"""A chat with the model of a run, as sent to the browser."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from llmops_kernel.metrics.events import RunState
from llmops_kernel.server.wire.common import Body, Wire

_MAX_PROMPT = 200_000


class ChatBody(Body):
    """A prompt for the models of a run."""

    prompt: str = Field(min_length=1, max_length=_MAX_PROMPT)
    after: str = ""
    """Id of the turn that this one continues."""
    system: str = Field(default="", max_length=_MAX_PROMPT)
    max_tokens: int = Field(default=256, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    only: Literal["", "base", "tuned"] = ""
    engine: str = "auto"


class ChatMessage(Wire):
    """One message of the conversation."""

    role: str
    """`system`, `user`, `assistant`."""
    content: str


class ChatSide(Wire):
    """One model's side of the conversation."""

    name: str
    """`base` or `tuned`."""
    model: str
    """Catalogue name, folder or hub id."""
    messages: list[ChatMessage]
    """Up to the prompt of this turn."""
    text: str
    """The answer so far."""
    is_final: bool
    finish: str
    """`stop`, `length`, `error`, `cancelled`; empty until the end."""
    error: str
    remedy: str
    output_tokens: int
    tokens_per_second: float | None
    first_token_s: float | None
    """From the submission to the first text."""


class ChatTurn(Wire):
    """Topic `chat/<id>`: one turn of a chat; its id is that of its run."""

    id: str
    run_id: str
    """The training run whose model is asked."""
    state: RunState
    is_over: bool
    line: str
    """What happens while no model has answered; empty after that."""
    message: str
    """Why it failed; empty where an answer has the error."""
    remedy: str
    warnings: list[str]
    sides: list[ChatSide]


class ChatHistory(Wire):
    """The newest conversation with a run's model."""

    turn: ChatTurn | None
    """Its last turn; null if there was none."""


WIRE_MODELS: tuple[type[BaseModel], ...] = (ChatBody, ChatTurn, ChatHistory)
