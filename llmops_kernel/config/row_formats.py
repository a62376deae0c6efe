"""The shapes of rows that a data set may have, each turned into messages or into text.

The check before a run and the workers both call this, so that they accept the same rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import isfinite, isnan
from typing import Any, NamedTuple

from llmops_kernel.config.problems import column_name

Row = dict[str, Any]


class Fault(NamedTuple):
    message: str
    """The mistake in a row; follows the row's number."""
    hint: str
    """A step that would work."""


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
            f"has no column {column_name(missing[0])}, only the keys {keys(row)}",
            "correct data.columns: it names the field first, then the column of your data",
        )
    rest = {key: value for key, value in row.items() if key not in columns.values()}
    return {**rest, **{field: row[column] for field, column in columns.items()}}


def shaped(row: Row, row_format: str) -> Row | Fault:
    """Return the row as `{"messages": [...]}`, `{"text": ...}` or, where an objective compares
    several texts, `{"parts": [...]}` of these, with the `target` that it has.

    With `tools` where it has some, and with a `weight` of 0 where nothing of it is to be learnt.
    """
    name = recognised(row, row_format)
    if name is None:
        return Fault(f"has only the keys {keys(row)}" if row else "has no keys", wanted(row_format))
    one = _FORMATS[name]
    found = one.read({**row, **_decoded(row, one)})
    if isinstance(found, Fault):
        return found
    if fault := _half_character(found):
        return fault
    tools = _tools(row.get("tools")) if "tools" in one.optional else []
    if isinstance(tools, Fault):
        return tools
    more = {"tools": tools} if tools else {}
    return {**found, **more, "weight": 0} if _left_out(row, name) else {**found, **more}


def _decoded(row: Row, one: _Format) -> Row:
    """Return the binary values of the fields of a format that are UTF-8, as texts."""
    found = {}
    for field in (*one.needed, *one.optional):
        if isinstance(row.get(field), bytes) and _is_utf8(row[field]):
            found[field] = row[field].decode()
    return found


def _half_character(found: Row) -> Fault | None:
    """Return which text has a lone surrogate: JSON can say one, and no tokenizer can read it."""
    for part in found.get("parts", ()):
        if fault := _half_character(part):
            return fault
    texts = [("`text`", found["text"])] if "text" in found else []
    for index, message in enumerate(found.get("messages", ()), start=1):
        texts += [(f"message {index}", message[key]) for key in ("role", "content")]
    for where, text in texts:
        if half := half_of(text):
            hint = "a text was cut inside of a character: write it again, or delete it"
            return Fault(f"{where} has half of a character ({half})", hint)
    return None


def half_of(text: str) -> str:
    """Return the first lone surrogate of a text as JSON writes it; empty without one."""
    found = None if text.isascii() else _SURROGATE.search(text)
    return f"\\u{ord(found.group()):04x}" if found else ""


_SURROGATE = re.compile("[\ud800-\udfff]")


def _tools(tools: Any) -> list[Any] | Fault:
    """Return the tools' definitions, also from a text of JSON."""
    given = tools.strip() if isinstance(tools, str) else tools
    found = _json(given) if isinstance(given, str) and given else given or []
    if isinstance(found, list) and all(isinstance(one, dict) for one in found):
        return found
    what = "no JSON" if isinstance(tools, str) and found is None else kind(found)
    return Fault(f"`tools` is {what}, not a list of objects", "write a list of JSON schemas")


def recognised(present: Collection[str], row_format: str) -> str | None:
    """Return the format of rows with these fields; None if `row_format` does not allow them."""
    for name in _ALLOWED.get(row_format, (row_format,)):
        if all(field in present for field in _FORMATS[name].needed):
            return name
    return None


def fields_of(row_format: str) -> tuple[str, ...]:
    """Return the fields that `data.columns` may name."""
    is_chat = row_format in _ALLOWED["auto"]
    names = _ALLOWED["auto"] if is_chat else _ALLOWED.get(row_format, (row_format,))
    formats = [_FORMATS[name] for name in names]
    return tuple(dict.fromkeys(f for one in formats for f in (*one.needed, *one.optional)))


def add_format(
    name: str,
    needed: tuple[str, ...],
    read: Callable[[Row], Row | Fault],
    optional: tuple[str, ...] = (),
    *,
    also: tuple[str, ...] = (),
) -> None:
    """Add the rows of an objective. `also`: other formats that its rows may have."""
    _FORMATS[name] = _Format(needed, read, optional)
    _ALLOWED[name] = (name, *also)


def wanted(row_format: str) -> str:
    """Return the remedy for rows without the fields of a format."""
    names = {
        name: [" + ".join(f"`{f}`" for f in _FORMATS[one].needed) for one in allowed]
        for name, allowed in _ALLOWED.items()
    } | {"chat": ["`messages`", "`prompt` and `completion`"]}
    either = names.get(row_format) or [" and ".join(f"`{f}`" for f in _FORMATS[row_format].needed)]
    return (
        f"{row_format} rows need {', or '.join(either)}; name other columns in data.columns,"
        " or define format_example(row) in the hooks file"
    )


def keys(row: Collection[str]) -> str:
    """Return the names of the first fields, for a sentence."""
    return ", ".join(map(column_name, sorted(map(str, row))[:8])) or "none"


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
            value = message.get(key)
            if isinstance(value, str) or (key == "content" and _calls_tools(message)):
                continue
            what = f"is {kind(value)}, not text" if key in message else "is missing"
            return Fault(f"`{key}` of message {index} {what}", hint)
    return None


def _calls_tools(message: Row) -> bool:
    """Return whether an assistant's message says nothing and calls tools instead."""
    return message.get("content") is None and bool(message.get("tool_calls"))


def kind(value: Any) -> str:
    """Return the type of a JSON value in words."""
    if is_missing(value):
        return f"{value} (a missing value)" if isnan(value) else f"{value}"
    if isinstance(value, bytes):
        return "binary data" if _is_utf8(value) else "binary data that is not UTF-8 text"
    return _KINDS.get(type(value), type(value).__name__)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_missing(value: Any) -> bool:
    """Return whether a number is none: NaN stands for a missing value in many tables."""
    return isinstance(value, float) and not isfinite(value)


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
    return chat_of(row, row["messages"])


def chat_of(row: Row, messages: Any) -> Row | Fault:
    """Return messages as templates read them, with what other fields put before them.

    A system message stays the first of all: most templates refuse one behind earlier turns.
    """
    if fault := messages_fault(messages):
        return fault
    plain = [_plain(message) for message in messages]
    count = 1 if plain[0]["role"] == "system" else 0
    system, history = _system(row, plain[:count]), _history(row.get("history"))
    if isinstance(system, Fault):
        return system
    if isinstance(history, Fault):
        return history
    return {"messages": [*system, *history, *plain[count:]]}


def _plain(message: Row) -> Row:
    """Return a message without what is null: in a table, each message has the keys of all others.

    A template that looks for `tool_calls` would find it. Arguments of a call that are JSON as a
    text become the object that Transformers documents: templates write it as JSON.
    """
    plain = {key: value for key, value in message.items() if value is not None}
    plain.setdefault("content", "")
    if is_context(plain.pop("weight", None)):
        plain["weight"] = 0
    if calls := plain.get("tool_calls"):
        plain["tool_calls"] = [_call(call) for call in calls] if isinstance(calls, list) else calls
    return plain


def _call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    parsed = _json(function["arguments"])
    if not isinstance(parsed, dict):
        return call
    return {**call, "function": {**function, "arguments": parsed}}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_context(weight: Any) -> bool:
    """Return whether a weight says that the model reads a row or message and does not learn it."""
    return weight is not None and str(weight).strip().lower() in ("0", "0.0", "false")


def _system(row: Row, own: list[Row]) -> list[Row] | Fault:
    """Return the system message: that of a field, or `own`, which the messages begin with."""
    system = row.get("system")
    if system is not None and not isinstance(system, str):
        return Fault(f"`system` is {kind(system)}, not text", "write a text, or leave it out")
    if not system:
        return own
    if own and own[0]["content"] != system:
        hint = "leave one of the two out, or join them"
        return Fault("has a `system` and a system message that says something else", hint)
    return own or [{"role": "system", "content": system}]


def _history(history: Any) -> list[Row] | Fault:
    """Return earlier turns: pairs of a question and its answer, or messages."""
    if isinstance(history, str):
        history = _json(history) if history.strip() else []
    if not history:
        return []
    hint = f'write [["question", "answer"], ...] or {_MESSAGE}'
    if not isinstance(history, list):
        return Fault(f"`history` is {kind(history)}, not a list", hint)
    if all(isinstance(turn, dict) for turn in history):
        return messages_fault(history) or [_plain(turn) for turn in history]
    found: list[Row] = []
    for index, turn in enumerate(history, start=1):
        if not isinstance(turn, list | tuple) or [*map(type, turn)] != [str, str]:
            return Fault(f"turn {index} of `history` is no question with its answer", hint)
        found += [{"role": "user", "content": turn[0]}, {"role": "assistant", "content": turn[1]}]
    return found


def _sharegpt(row: Row) -> Row | Fault:
    turns, hint = row["conversations"], f"write {_TURN}"
    if not isinstance(turns, list) or not turns:
        what = "is empty" if turns == [] else f"is {kind(turns)}, not a list"
        return Fault(f"`conversations` {what}", hint)
    messages: list[Row] = []
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
        rest = {"weight": turn["weight"]} if "weight" in turn else {}
        messages.append({"role": role, "content": turn["value"], **rest})
    return chat_of(row, messages)


def _prompt_completion(row: Row) -> Row | Fault:
    messages: list[Row] = []
    for field, role in (("prompt", "user"), ("completion", "assistant")):
        value = row[field]
        if isinstance(value, list):
            messages += value
        elif isinstance(value, str | bool | int | float) and not is_missing(value):
            messages.append({"role": role, "content": str(value)})
        else:
            return Fault(f"`{field}` is {kind(value)}", "write a text or a list of messages")
    return chat_of(row, messages)


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
    return chat_of(row, turns)


def _text(row: Row) -> Row | Fault:
    if isinstance(row["text"], str):
        return {"text": row["text"]}
    return Fault(f"`text` is {kind(row['text'])}", "write a string")


class _Format(NamedTuple):
    needed: tuple[str, ...]
    read: Callable[[Row], Row | Fault]
    optional: tuple[str, ...] = ()


OF_CHATS = ("system", "history", "tools", "weight", "label")
# In the order in which `auto` looks.
_FORMATS = {
    "chat": _Format(("messages",), _chat, OF_CHATS),
    "sharegpt": _Format(("conversations",), _sharegpt, OF_CHATS),
    "prompt_completion": _Format(("prompt", "completion"), _prompt_completion, OF_CHATS),
    "alpaca": _Format(("instruction", "output"), _alpaca, ("input", *OF_CHATS)),
    "text": _Format(("text",), _text, ("weight",)),
}
_ALLOWED: dict[str, tuple[str, ...]] = {
    "auto": tuple(_FORMATS),
    "chat": ("chat", "prompt_completion"),
}
"""Names that stand for several formats; the first that a row has is taken."""

UNUSED = {
    **dict.fromkeys(
        ("images", "image", "videos", "video", "audios", "audio"),
        "not used: this training reads and writes text only",
    ),
    **dict.fromkeys(
        ("chosen", "rejected", "rejected_response", "chosen_response"),
        "not used: this training learns an answer, and does not compare two",
    ),
    **dict.fromkeys(
        ("logprobs", "top_logprobs"),
        "not used: this training learns texts, not another model's probabilities",
    ),
    "functions": "not used; calls and their definitions are read from `tools`",
}
"""Columns of other kinds of training -> what becomes of them. All others are named as columns."""


NO_TEMPLATE = "not in the model's chat template: the model does not see them"
_OF_MESSAGES = ("tool_calls", "reasoning_content", "thinking", "reasoning")
"""Keys of a message that a template may read."""


class Use(NamedTuple):
    """A sentence on what becomes of a field of a row, where its user may think otherwise."""

    field: str
    what: str
    """Follows "12 rows have `field`, which is"."""

    def said(self, count: int) -> str:
        """Return the sentence about so many rows, without its end."""
        rows = "1 row has" if count == 1 else f"{count:,} rows have"
        return f"{rows} `{self.field}`, which is {self.what}"


def uses(row: Row, row_format: str) -> Iterator[Use]:
    """Yield what is to be said of a row's fields, for the number of such rows to be counted.

    Fields of the format are used, `UNUSED` are not. Those of
    `NO_TEMPLATE` are to be said only of a model whose template does not have the word.
    """
    if _is_plain(row) or (name := recognised(row, row_format)) is None:
        return
    one = _FORMATS[name]
    for field in (*one.needed, *one.optional):
        if isinstance(row.get(field), bytes):
            yield Use(field, "binary, and was read as UTF-8 text")
    tools = row.get("tools") if "tools" in one.optional else None
    if tools.strip() if isinstance(tools, str) else tools:
        yield Use("tools", NO_TEMPLATE)
    turns = _turns(row, (*one.needed, *one.optional))
    for key in _OF_MESSAGES:
        if any(turn.get(key) for turn in turns):
            yield Use(key, NO_TEMPLATE)
    if reason := _left_out(row, name):
        yield Use(reason, "0 or false: nothing of such a row is learnt")
    elif any(_is_other(one.get("weight"), ("0", "1", "0.0", "1.0")) for one in (row, *turns)):
        yield Use("weight", "not 0 and not 1: it is not used, and counts as 1")
    elif "label" in one.optional and _is_other(row.get("label"), ()):
        yield Use("label", "not true and not false: it is not used")
    for field, what in UNUSED.items():
        value = None if field in (*one.needed, *one.optional) else row.get(field)
        # Not by comparing: a hook's row may have an array, which is compared number by number.
        if value is not None and not (isinstance(value, str | list | dict) and not value):
            yield Use(field, what)


_SAID = frozenset({"tools", "weight", "label", *UNUSED})


def _is_plain(row: Row) -> bool:
    """Return whether nothing is to be said, as of most rows; in a microsecond."""
    if not _SAID.isdisjoint(row) or any(type(value) is bytes for value in row.values()):
        return False
    return all(len(turn) < 3 for turn in _turns(row, _WITH_TURNS))


_WITH_TURNS = ("messages", "conversations", "prompt", "completion", "history")


def _turns(row: Row, fields: Iterable[str]) -> list[Row]:
    """Return the messages or turns in some fields of a row."""
    lists = (row[field] for field in fields if isinstance(row.get(field), list))
    return [turn for turns in lists for turn in turns if isinstance(turn, dict)]


def _is_other(value: Any, known: tuple[str, ...]) -> bool:
    if value is None or is_missing(value):
        return False
    return str(value).strip().lower() not in (*known, "true", "false", "")


def _left_out(row: Row, name: str) -> str:
    """Return the field that says that nothing of a row is to be learnt, empty if none does.

    `label` is that of KTO: whether the answer is a good one. A number is a class of something else.
    """
    if is_context(row.get("weight")):
        return "weight"
    has_label = "label" in _FORMATS[name].optional and "label" in row
    return "label" if has_label and str(row["label"]).lower() == "false" else ""


def columns_unused(columns: Iterable[str], row_format: str) -> list[str]:
    """Return the columns that no row of the format is read from, without those of `UNUSED`."""
    names = list(columns)
    name = recognised(names, row_format)
    if name is None:
        return []
    used = {*_FORMATS[name].needed, *_FORMATS[name].optional, *UNUSED}
    return sorted(column for column in names if column not in used)
