"""Chats as text: the model's template applied, and where in it messages are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from llmops_kernel.errors import DataError

Message = dict[str, Any]


def with_spans(
    row: dict[str, Any], wanted: Sequence[bool], number: int | str, tokenizer: Any
) -> tuple[str, list[tuple[int, int]]]:
    """The chat as text, and the character spans of the wanted ones of its messages."""
    messages, tools = row["messages"], row.get("tools")
    spans = []
    text = rendered(tokenizer, messages, tools)
    for index, message in enumerate(messages):
        if not wanted[index]:
            continue
        is_answer = message["role"] == "assistant"
        if index:
            before = rendered(tokenizer, messages[:index], tools, prompt=is_answer)
        else:
            before = _before_first(tokenizer, message, tools)
        is_last = index + 1 == len(messages)
        through = text if is_last else rendered(tokenizer, messages[: index + 1], tools)
        if not (text.startswith(through.rstrip()) and through.startswith(before)):
            raise DataError(
                f"Row {number}: the model's chat template rewrites earlier turns, so the answer's"
                " tokens cannot be identified.",
                remedy="set data.loss_on: all, or use chats with a single answer",
            )
        spans.append((len(before), len(through)))
    return text, spans


def _before_first(tokenizer: Any, message: Message, tools: Any) -> str:
    """Return what the template writes before the text of a chat's first message.

    Templates are not made for a chat without messages, so two chats of one message are compared.
    """
    one, other = (rendered(tokenizer, [{**message, "content": c}], tools) for c in ("A", "B"))
    equal = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return "".join(letter for letter, _ in equal)


def rendered(
    tokenizer: Any, messages: Sequence[Message], tools: Any = None, *, prompt: bool = False
) -> str:
    """Return what the template makes of a chat; with `prompt` up to where an answer begins."""
    if tokenizer.chat_template is None:
        raise DataError(
            "The rows are chats, but the model's tokenizer has no chat template.",
            remedy="use the model's instruct variant, or format: text",
        )
    plain = [{key: one[key] for key in one if key != "weight"} for one in messages]
    text: str = tokenizer.apply_chat_template(
        plain, tools=tools, tokenize=False, add_generation_prompt=prompt
    )
    return text
