"""The shapes of rows that a data set may have, each turned into messages or into text.

The check before a run and the workers both call this, so that they accept the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

Row = dict[str, Any]


class Fault(NamedTuple):
    message: str
    """What is wrong with a row; follows the row's number."""
    hint: str
    """What would work."""


_MESSAGE = '[{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]'
_TURN = '[{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]'
_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "system": "system",
}


def renamed(row: Row, columns: Mapping[str, str]) -> Row | Fault:
    """Return the row with the fields of `columns` (field: column of the data)."""
    missing = [column for column in columns.values() if column not in row]
    if missing:
        return Fault(
            f"has no column {missing[0]}, only the keys {keys(row)}",
            "correct data.columns: it names the field first, then the column of your data",
        )
    rest = {key: value for key, value in row.items() if key not in columns.values()}
    return {**rest, **{field: row[column] for field, column in columns.items()}}


def shaped(row: Row, row_format: str) -> Row | Fault:
    """Return the row as `{"messages": [...]}` or `{"text": ...}`."""
    name = recognised(row, row_format)
    if name is None:
        return Fault(f"has only the keys {keys(row)}" if row else "has no keys", wanted(row_format))
    return _FORMATS[name].read(row)


def recognised(present: Collection[str], row_format: str) -> str | None:
    """Return the format of rows with these fields; None if `row_format` does not allow them."""
    allowed = {"auto": tuple(_FORMATS), "chat": ("chat", "prompt_completion")}
    for name in allowed.get(row_format, (row_format,)):
        if all(field in present for field in _FORMATS[name].needed):
            return name
    return None


def wanted(row_format: str) -> str:
    """Return the remedy for rows without the fields of a format."""
    names = {
        "auto": [" + ".join(f"`{f}`" for f in one.needed) for one in _FORMATS.values()],
        "chat": ["`messages`", "`prompt` and `completion`"],
    }
    either = names.get(row_format) or [" and ".join(f"`{f}`" for f in _FORMATS[row_format].needed)]
    return (
        f"{row_format} rows need {', or '.join(either)}; name other columns in data.columns,"
        " or define format_example(row) in the hooks file"
    )


def keys(row: Collection[str]) -> str:
    """Return the names of the first fields, for a sentence."""
    return ", ".join(sorted(map(str, row))[:8]) or "none"


def messages_fault(messages: Any) -> Fault | None:
    """Return what is wrong with a list of messages."""
    hint = f"write {_MESSAGE}"
    if not isinstance(messages, list):
        return Fault(f"`messages` is {kind(messages)}, not a list", hint)
    if not messages:
        return Fault("`messages` is empty", hint)
    for index, message in enumerate(messages, start=1):
        if not isinstance(message, dict):
            return Fault(f"message {index} is {kind(message)}, not an object", hint)
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                what = f"is {kind(message[key])}, not text" if key in message else "is missing"
                return Fault(f"`{key}` of message {index} {what}", hint)
    return None


def kind(value: Any) -> str:
    """Return the type of a JSON value in words."""
    return _KINDS.get(type(value), type(value).__name__)


_KINDS: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true/false",
    type(None): "null",
}


def _chat(row: Row) -> Row | Fault:
    return messages_fault(row["messages"]) or {"messages": row["messages"]}


def _sharegpt(row: Row) -> Row | Fault:
    turns, hint = row["conversations"], f"write {_TURN}"
    if not isinstance(turns, list) or not turns:
        what = "is empty" if turns == [] else f"is {kind(turns)}, not a list"
        return Fault(f"`conversations` {what}", hint)
    messages = _system(row)
    for index, turn in enumerate(turns, start=1):
        if not isinstance(turn, dict) or not isinstance(turn.get("value"), str):
            return Fault(f"turn {index} has no text `value`", hint)
        role = _ROLES.get(str(turn.get("from")))
        if role is None:
            known = ", ".join(_ROLES)
            return Fault(
                f"`from` of turn {index} is {turn.get('from')!r}",
                f"the senders read are {known}; map others with format_example(row)",
            )
        messages.append({"role": role, "content": turn["value"]})
    return {"messages": messages}


def _prompt_completion(row: Row) -> Row | Fault:
    messages: list[Row] = []
    for field, role in (("prompt", "user"), ("completion", "assistant")):
        value = row[field]
        if value is None or isinstance(value, dict):
            return Fault(f"`{field}` is {kind(value)}", "write a text or a list of messages")
        one = value if isinstance(value, list) else [{"role": role, "content": str(value)}]
        messages += one
    return messages_fault(messages) or {"messages": messages}


def _alpaca(row: Row) -> Row | Fault:
    """Join `instruction` and `input` with a line break, as LLaMA-Factory does."""
    for field in ("instruction", "output"):
        if not isinstance(row[field], str):
            return Fault(f"`{field}` is {kind(row[field])}, not text", "write a text")
    given = row.get("input")
    if given is not None and not isinstance(given, str):
        return Fault(f"`input` is {kind(given)}, not text", "write a text, or leave it out")
    prompt = f"{row['instruction']}\n{given}" if given else row["instruction"]
    turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": row["output"]}]
    return {"messages": [*_system(row), *turns]}


def _system(row: Row) -> list[Row]:
    system = row.get("system")
    return [{"role": "system", "content": system}] if isinstance(system, str) and system else []


def _text(row: Row) -> Row | Fault:
    if isinstance(row["text"], str):
        return {"text": row["text"]}
    return Fault(f"`text` is {kind(row['text'])}", "write a string")


class _Format(NamedTuple):
    needed: tuple[str, ...]
    read: Callable[[Row], Row | Fault]
    optional: tuple[str, ...] = ()


# In the order in which `auto` looks.
_FORMATS = {
    "chat": _Format(("messages",), _chat),
    "sharegpt": _Format(("conversations",), _sharegpt, ("system",)),
    "prompt_completion": _Format(("prompt", "completion"), _prompt_completion),
    "alpaca": _Format(("instruction", "output"), _alpaca, ("input", "system")),
    "text": _Format(("text",), _text),
}
FIELDS = tuple(dict.fromkeys(f for one in _FORMATS.values() for f in (*one.needed, *one.optional)))
"""The fields that `data.columns` may name."""
