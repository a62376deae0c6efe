"""Chats as text: the model's template applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmops_kernel.errors import DataError

Message = dict[str, Any]


def rendered(
    tokenizer: Any, messages: Sequence[Message], tools: Any = None, *, prompt: bool = False
) -> str:
    """Return what the template makes of a chat; with `prompt` up to where an answer begins."""
    if tokenizer.chat_template is None:
        raise DataError(
            "The rows are chats, but the model's tokenizer has no chat template.",
            remedy="use the model's instruct variant, or format: text",
        )
    text: str = tokenizer.apply_chat_template(
        plain(messages), tools=tools, tokenize=False, add_generation_prompt=prompt
    )
    return text


def plain(messages: Sequence[Message]) -> list[Message]:
    """Return the messages as a template reads them: it knows no weights."""
    return [{key: one[key] for key in one if key != "weight"} for one in messages]
