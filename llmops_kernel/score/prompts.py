"""Turns a row into a prompt and the expected answer, by template, chat, column or hook."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.config.objective_rows import label_names
from llmops_kernel.config.problems import column_name
from llmops_kernel.config.row_formats import half_of, is_missing
from llmops_kernel.driver.hooks import call
from llmops_kernel.errors import DataError, HookError
from llmops_kernel.score.engines.protocol import Prompt

PROMPT_HOOKS = ("format_prompt", "format_example")
Hook = Callable[..., Any] | None


@dataclass(slots=True)
class Prepared:
    """The engine's input for a row, and the expected answer."""

    prompt: Prompt
    reference: str | None = None
    is_rated: bool = False
    """True if there is to be a reference; this row may lack it."""

    def lack(self, task: str) -> str:
        """Return what the task cannot do without; empty where nothing is missing.

        `logprob` rates the reference. Only where none is ever named does it rate the prompt: a
        perplexity of some rows' references and other rows' prompts would be of nothing.
        """
        if task == "logprob" and self.is_rated and not self.reference:
            return "the reference is empty, so the task logprob has nothing to rate"
        return ""


class PromptMaker:
    """Makes the prompts of a score config."""

    def __init__(self, config: ScoreConfig, hooks: Mapping[str, Hook]) -> None:
        settings = config.prompt
        self._settings, task = settings, config.task
        self._is_rated_whole = task.type == "value"
        self._has_labels = task.type == "classify" and not task.choices
        self._column = settings.reference
        self._filled = _template(settings.reference) if "{" in settings.reference else None
        self._make = self._way(hooks)

    def __call__(self, row: dict[str, Any]) -> Prepared:
        """Return the prompt of a row. Raises DataError or HookError for a row that has none."""
        prepared = self._make(row)
        if half := _half_character(prepared.prompt):
            raise DataError(f"the prompt has half of a character ({half})")
        if _is_empty(prepared.prompt):
            raise DataError("the prompt is empty", remedy="check the row's columns")
        if self._column:
            prepared.reference, prepared.is_rated = self._expected(row), True
        if half := half_of(prepared.reference or ""):
            raise DataError(f"the reference has half of a character ({half})")
        return prepared

    def _way(self, hooks: Mapping[str, Hook]) -> Callable[[dict[str, Any]], Prepared]:
        settings = self._settings
        if settings.template:
            text = _template(settings.template)
            return lambda row: Prepared(self.of_text(text(row)))
        if settings.messages:
            templates = [
                (message.role, _template(message.content)) for message in settings.messages
            ]
            return lambda row: Prepared([{"role": r, "content": t(row)} for r, t in templates])
        if settings.column:
            return lambda row: Prepared(self._column_prompt(row))
        hook = next((hooks[name] for name in PROMPT_HOOKS if hooks.get(name)), None)
        if hook is None:
            raise HookError(
                "Nothing says how a row becomes a prompt.",
                remedy=f"define {' or '.join(PROMPT_HOOKS)} in the hooks file, or write prompt",
            )
        return lambda row: self._hook_prompt(call(hook, row))

    def of_text(self, text: str) -> Prompt:
        """Return a text as the model is given it: as a user's message, or as it is."""
        is_chat = self._settings.chat is not False
        return [{"role": "user", "content": text}] if is_chat else text

    def _column_prompt(self, row: dict[str, Any]) -> Prompt:
        value = _value(row, self._settings.column)
        if isinstance(value, str | bytes):
            return self.of_text(_text(value))
        return _messages(value, source=f"column {self._settings.column}")

    def _hook_prompt(self, result: Any) -> Prepared:
        """Read what a hook returned: a text, messages, or a dict of either with a reference.

        Messages that end with the assistant's are a training example: its words are the reference.
        """
        if isinstance(result, str):
            return Prepared(self.of_text(result))
        if isinstance(result, dict) and "prompt" in result:
            expected = result.get("reference", result.get("completion"))
            inner = self._hook_prompt(result["prompt"])
            is_rated = not result.keys().isdisjoint(("reference", "completion"))
            text = _text(expected) if expected is not None else None
            return Prepared(inner.prompt, text, is_rated)
        messages = result.get("messages") if isinstance(result, dict) else result
        if isinstance(result, dict) and result.get("tools"):
            raise DataError("the hook's result has `tools`, which a scoring does not send")
        chat = _messages(messages, source="the hook's result")
        if chat and chat[-1]["role"] == "assistant" and not self._is_rated_whole:
            return Prepared(chat[:-1], chat[-1]["content"], is_rated=True)
        return Prepared(chat)

    def _expected(self, row: dict[str, Any]) -> str | None:
        if self._filled is not None:
            return self._filled(row)
        if self._column not in row:
            raise _no_column(row, self._column)
        value = row[self._column]
        if value is None or is_missing(value):
            return None
        if not self._has_labels:
            return _text(value)
        names = label_names([*value] if isinstance(value, tuple) else value)
        return (
            json.dumps(names, ensure_ascii=False) if isinstance(value, list | tuple) else names[0]
        )


def _half_character(prompt: Prompt) -> str:
    """Return the lone surrogate of a prompt, which no tokenizer can read; empty without one."""
    texts = [prompt] if isinstance(prompt, str) else [message["content"] for message in prompt]
    return next(filter(None, map(half_of, texts)), "")


def _is_empty(prompt: Prompt) -> bool:
    last = prompt if isinstance(prompt, str) else prompt[-1]["content"] if prompt else ""
    return not last.strip()


def _template(text: str) -> Callable[[dict[str, Any]], str]:
    """Return a function from a row to the text. Names are columns; `{{` is a brace."""
    try:
        pieces = list(string.Formatter().parse(text))
    except ValueError as error:
        raise DataError(
            f"The template {text[:60]!r} is not valid: {error}",
            remedy="write columns as {name}, and a brace itself as {{ or }}",
        ) from error

    def fill(row: dict[str, Any]) -> str:
        out = []
        for literal, name, spec, _ in pieces:
            out.append(literal)
            if name is not None:
                value = _lookup(row, name)
                out.append(_formatted(value, spec, name) if spec else _text(value))
        return "".join(out)

    return fill


def _formatted(value: Any, spec: str, name: str) -> str:
    try:
        return format(value, spec)
    except (TypeError, ValueError) as error:
        raise DataError(f"column {name} cannot be written as {{{name}:{spec}}}: {error}") from error


def _lookup(row: dict[str, Any], name: str) -> Any:
    """Return a column, or `tags.diet` of a column that is an object."""
    if name in row:
        return _value(row, name)
    head, _, rest = name.partition(".")
    value = _value(row, head)
    for key in rest.split(".") if rest else ():
        if not isinstance(value, dict) or key not in value:
            raise DataError(f"column {head} has no {rest}", remedy="check the prompt's template")
        value = value[key]
    return value


def _value(row: dict[str, Any], name: str) -> Any:
    if name not in row:
        raise _no_column(row, name)
    value = row[name]
    if value is None or is_missing(value):
        raise DataError(f"column {name} is empty" if value is None else f"column {name} is {value}")
    return value


def _no_column(row: dict[str, Any], name: str) -> DataError:
    have = ", ".join(map(column_name, list(row)[:8])) or "no columns"
    return DataError(f"there is no column {column_name(name)} (the row has {have})")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return _decoded(value)
    if is_missing(value):
        raise DataError(f"{value} is a missing value, not a text")
    if isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    raise DataError(f"a {type(value).__name__} is not a text")


def _decoded(value: bytes) -> str:
    """Return binary data that is a text; a table may have it without the word for it."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise DataError("binary data that is not UTF-8 is not a text") from error


def _messages(value: Any, *, source: str) -> list[dict[str, str]]:
    if not isinstance(value, list | tuple) or not value:
        raise DataError(f"{source} is a {type(value).__name__}, not a text or a list of messages")
    chat = []
    for message in value:
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, str) or not isinstance(message.get("role"), str):
            raise DataError(f"{source} has a message without role and content")
        if message.get("tool_calls"):
            raise DataError(
                f"{source} has a message with tool_calls, which a scoring does not send"
            )
        chat.append({"role": message["role"], "content": content})
    return chat
