"""Chats as text: the model's template applied, and where in it the answers are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmops_kernel.errors import DataError


def with_answers(
    messages: Sequence[dict[str, str]], number: int | str, tokenizer: Any
) -> tuple[str, list[tuple[int, int]]]:
    """The chat as text, and the character spans of what the assistant writes."""
    answers = []
    text = rendered(tokenizer, messages)
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = rendered(tokenizer, messages[:index], prompt=True)
        is_last = index + 1 == len(messages)
        through = text if is_last else rendered(tokenizer, messages[: index + 1])
        if not (text.startswith(through.rstrip()) and through.startswith(before)):
            raise DataError(
                f"Row {number}: the model's chat template rewrites earlier turns, so the answer's"
                " tokens cannot be identified.",
                remedy="set data.loss_on: all, or use chats with a single answer",
            )
        answers.append((len(before), len(through)))
    return text, answers


def rendered(tokenizer: Any, messages: Sequence[dict[str, str]], *, prompt: bool = False) -> str:
    """Return what the template makes of a chat; with `prompt` up to where an answer begins."""
    if tokenizer.chat_template is None:
        raise DataError(
            "The rows are chats, but the model's tokenizer has no chat template.",
            remedy="use the model's instruct variant, or format: text",
        )
    text: str = tokenizer.apply_chat_template(
        list(messages), tokenize=False, add_generation_prompt=prompt
    )
    return text
