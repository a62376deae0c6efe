"""Says in words what a field takes, from its type and bounds."""

from __future__ import annotations

import math
import re
import types
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from llmops_kernel.config.names import VALUE_ALIASES
from llmops_kernel.config.problems import closest
from llmops_kernel.config.sections import NAME_PATTERN, Section

_PATTERNS = {NAME_PATTERN: "lower-case letters, digits and dashes, at most 40"}
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_BOUNDS: tuple[tuple[type, str], ...] = (
    (annotated_types.Ge, "at least"),
    (annotated_types.Gt, "above"),
    (annotated_types.Le, "at most"),
    (annotated_types.Lt, "below"),
)
_LIMITS = {"at least": "ge", "above": "gt", "at most": "le", "below": "lt"}


def members(annotation: Any) -> tuple[Any, ...]:
    """The types a value may have: of `int | None` both, of `int` the one."""
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def section_of(annotation: Any) -> type[Section] | None:
    """The section class of a field that is one."""
    found = [m for m in members(annotation) if isinstance(m, type) and issubclass(m, Section)]
    return found[0] if found else None


def expected(field: FieldInfo) -> str:
    """`a whole number of at least 1, or null`; fits after "must be"."""
    words = [word for member in members(field.annotation) for word in _words(member, field)]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def _words(member: Any, field: FieldInfo) -> list[str]:
    if member is type(None):
        return ["null"]
    if get_origin(member) is Literal:
        values = [str(value) for value in get_args(member)]
        return values if len(values) == 1 or len(members(field.annotation)) > 1 else [
            "one of " + ", ".join(values)
        ]  # fmt: skip
    if isinstance(member, type) and issubclass(member, Section):
        return ["a section of `key: value` lines"]
    if member in (int, float):
        return [_number(member, field)]
    if member is str:
        return [_text(field)]
    return [_KINDS.get(get_origin(member) or member, "a value")]


_KINDS: dict[Any, str] = {
    bool: "true or false",
    tuple: "a list such as [a, b]",
    dict: "a mapping of `key: value` lines",
}


def _number(kind: Any, field: FieldInfo) -> str:
    noun = "a whole number" if kind is int else "a number"
    bounds = [
        f"{words} {getattr(item, _LIMITS[words])}"
        for item in field.metadata
        for bound, words in _BOUNDS
        if isinstance(item, bound)
    ]
    if not bounds:
        return noun
    first = f"of {bounds[0]}" if bounds[0].startswith("at") else bounds[0]
    return " and ".join([f"{noun} {first}", *bounds[1:]])


def _text(field: FieldInfo) -> str:
    patterns = [getattr(item, "pattern", None) for item in field.metadata]
    return next((_PATTERNS[pattern] for pattern in patterns if pattern in _PATTERNS), "text")


def would_work(field: FieldInfo, value: Any) -> str:
    """The nearest thing to `value` that the field takes, as a suggestion; else the default."""
    allowed = choices(field)
    if allowed:
        name = str(value)
        alias = VALUE_ALIASES.get(name.lower())
        match = alias if alias in allowed else closest(name, allowed, cutoff=0.5)
        if match:
            return f"did you mean {match}?"
    return _rewritten(field, value) or _default(field)


def _rewritten(field: FieldInfo, value: Any) -> str:
    kinds = members(field.annotation)
    if isinstance(value, str) and (int in kinds or float in kinds):
        found = _NUMBER.search(value.replace(",", "").replace("_", ""))
        return f"write the bare number, {found.group()}" if found else ""
    if isinstance(value, float) and int in kinds and abs(value) < 1e15:
        return f"write for example {max(1, round(value))}"
    if isinstance(value, str) and _text(field) != "text":
        slug = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")[:40].strip("-")
        return f"write for example {slug}" if slug else ""
    return ""


def _default(field: FieldInfo) -> str:
    if field.is_required() or section_of(field.annotation):
        return ""
    default = field.get_default(call_default_factory=True)
    return "" if isinstance(default, BaseModel) else f"the default is {compact(default)}"


def compact(value: Any) -> str:
    """A default as one writes it by hand: `2e-4`, `null`, `[]`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value:.1f}".replace("nan", ".nan").replace("inf", ".inf")
    if isinstance(value, float) and value and not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f"{value!r}e0".split("e")[:2] if "e" in repr(value) else (
            f"{value:.12e}".split("e")
        )  # fmt: skip
        return f"{float(mantissa):g}e{int(exponent)}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(compact(item) for item in value) + "]"
    return "{}" if value == {} else str(value)


def choices(field: FieldInfo) -> list[str]:
    """The values of a field that takes only some; empty for others."""
    return [
        str(choice)
        for member in members(field.annotation)
        if get_origin(member) is Literal
        for choice in get_args(member)
    ]
