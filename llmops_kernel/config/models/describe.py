"""Describe in words what a field takes, from its type and bounds."""

from __future__ import annotations

import math
import re
import types
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel, ByteSize
from pydantic.fields import FieldInfo

from llmops_kernel.config.models.quantity import PATTERN as QUANTITY_PATTERN
from llmops_kernel.config.models.section import (
    CLUSTER_NAME_PATTERN,
    ENV_PATTERN,
    GROUP_PATTERN,
    MOUNT_PATTERN,
    NAME_PATTERN,
    Section,
)
from llmops_kernel.config.names import METHOD_OPTIONS, OTHER_METHODS, VALUE_ALIASES
from llmops_kernel.config.problems import closest

_NAMES = {
    NAME_PATTERN: "lower-case letters, digits and dashes, at most 40",
    CLUSTER_NAME_PATTERN: "at most 53 lower-case letters, digits and dashes, a letter first: "
    "KubeRay makes names of pods and services from it",
    GROUP_PATTERN: "at most 47 lower-case letters, digits and dashes, a letter first",
}
_PATTERNS = {
    **_NAMES,
    QUANTITY_PATTERN: "a Kubernetes quantity such as 8, 500m, 64Gi or 1.5T",
    MOUNT_PATTERN: "an absolute path such as /mnt/team",
    ENV_PATTERN: "the name of a variable such as HF_TOKEN",
}
_BYTES = re.compile(r"^\s*([0-9.]+)\s*([kmgtpe])(i?)b?\s*$", re.I)
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_BOUNDS: tuple[tuple[type, str], ...] = (
    (annotated_types.Ge, "at least"),
    (annotated_types.Gt, "above"),
    (annotated_types.Le, "at most"),
    (annotated_types.Lt, "below"),
)
_LIMITS = {"at least": "ge", "above": "gt", "at most": "le", "below": "lt"}


def members(annotation: Any) -> tuple[Any, ...]:
    """Return the types a value may have: two for `int | None`, one for `int`."""
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(map(_bare, get_args(annotation)))
    return (_bare(annotation),)


def _bare(annotation: Any) -> Any:
    """Without what `Annotated` adds."""
    return annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation


def section_of(annotation: Any) -> type[Section] | None:
    """Return the class of a field that is a section."""
    sections = [m for m in members(annotation) if isinstance(m, type) and issubclass(m, Section)]
    return sections[0] if sections else None


def item_section(field: FieldInfo) -> type[Section] | None:
    """Return the section class of a list field's items."""
    for member in members(field.annotation):
        for item in get_args(member) if get_origin(member) in (tuple, list) else ():
            if isinstance(item, type) and issubclass(item, Section):
                return item
    return None


def pattern_of(field: FieldInfo) -> str | None:
    """Return the regular expression that a text must match, or None."""
    annotation = field.annotation
    parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else ()
    added = [item for part in parts for item in getattr(part, "__metadata__", ())]
    inner = [more for item in added for more in getattr(item, "metadata", ())]
    patterns = (getattr(item, "pattern", None) for item in [*field.metadata, *inner])
    return next((pattern for pattern in patterns if pattern is not None), None)


def expected(field: FieldInfo) -> str:
    """Return words that fit after "must be": `a whole number of at least 1 or null`."""
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
    if member is ByteSize:
        return ["a size such as `8GiB`"]
    if member is str:
        return [_text(field)]
    if item_section(field) is not None and get_origin(member) in (tuple, list):
        return ["a list of sections, each with `- ` before its first line"]
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
    return _PATTERNS.get(pattern_of(field) or "", "text")


def would_work(field: FieldInfo, value: Any) -> str:
    """Suggest the value closest to `value` that the field takes, else the default."""
    allowed = choices(field)
    name = str(value)
    if "lora" in allowed and (words := _method_words(name, allowed)):
        return words
    if allowed:
        alias = VALUE_ALIASES.get(name.lower())
        match = alias if alias in allowed else closest(name, allowed, cutoff=0.5)
        if match:
            return f"did you mean {match}?"
    return _rewritten(field, value) or _default(field)


def _method_words(name: str, allowed: list[str]) -> str:
    """Return words for a method known from elsewhere, also a misspelt one; else an empty text."""
    like = closest(name, [*allowed, *METHOD_OPTIONS, *OTHER_METHODS], cutoff=0.75)
    if like in METHOD_OPTIONS:
        return f"{like} is an option of lora: set type: lora and {METHOD_OPTIONS[like]}: true"
    return f"{like} is another method, which is not available here" if like in OTHER_METHODS else ""


def _rewritten(field: FieldInfo, value: Any) -> str:
    kinds = members(field.annotation)
    if isinstance(value, str) and (int in kinds or float in kinds):
        match = _NUMBER.search(value.replace(",", "").replace("_", ""))
        return f"write the bare number, {match.group()}" if match else ""
    if isinstance(value, float) and int in kinds and abs(value) < 1e15:
        return f"write for example {max(1, round(value))}"
    pattern = pattern_of(field)
    if isinstance(value, str) and pattern == QUANTITY_PATTERN and (match := _BYTES.match(value)):
        unit = "k" if match[2] in "kK" and not match[3] else match[2].upper()
        return f"write for example {match[1]}{unit}{'i' if match[3] else ''}"
    if isinstance(value, str) and pattern in _NAMES:
        slug = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")
        tries = (name[:40].strip("-") for name in (slug, f"ray-{slug}"))
        fitting = next((name for name in tries if re.match(str(pattern), name)), "")
        return f"write for example {fitting}" if fitting else ""
    return ""


def _default(field: FieldInfo) -> str:
    if field.is_required() or section_of(field.annotation):
        return ""
    default = field.get_default(call_default_factory=True)
    return "" if isinstance(default, BaseModel) else f"the default is {compact(default)}"


def compact(value: Any) -> str:
    """Return a default as it is written by hand: `2e-4`, `null`, `[]`."""
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
    """Return the allowed values of a field; empty for a field that takes any."""
    return [
        str(choice)
        for member in members(field.annotation)
        if get_origin(member) is Literal
        for choice in get_args(member)
    ]
