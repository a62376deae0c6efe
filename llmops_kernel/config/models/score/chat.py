"""The config of one turn of a chat: models with their messages so far. Not a file of the user's."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from llmops_kernel.config.models.score.data import EngineSettings, Message, Sampling, ScoredModel
from llmops_kernel.config.models.section import NAME_PATTERN, RunConfig, Section

ModelName = Literal["base", "tuned"]


class ChatModel(Section):
    """A model that answers, and its side of the conversation."""

    name: ModelName
    """`base` or `tuned`."""
    model: ScoredModel
    """Where the model is."""
    messages: tuple[Message, ...]
    """The conversation with the model's own earlier answers. The last message is the user's."""


class ChatConfig(RunConfig):
    """One prompt to one or two models."""

    name: str = Field(default="chat", pattern=NAME_PATTERN)
    """The first part of each run id."""
    run: str
    """Id of the training run whose model is asked."""
    after: str = ""
    """Id of the turn before this one; empty for the first."""
    models: tuple[ChatModel, ...] = Field(min_length=1)
    """The models, in the order in which they are shown."""
    template: bool = True
    """Apply the model's chat template; otherwise the texts are continued as they are."""
    sampling: Sampling = Sampling()
    """How the next token is chosen."""
    engine: EngineSettings = EngineSettings()
    """What generates the answers."""
