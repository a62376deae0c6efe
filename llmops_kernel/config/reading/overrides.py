"""Apply overrides (`section.field=value`, keyword arguments) to a config's data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from llmops_kernel.config.models.choice import Choice, fields_of
from llmops_kernel.config.models.describe import item_section, section_of
from llmops_kernel.config.models.section import Config, Section
from llmops_kernel.config.names import ALIASES
from llmops_kernel.config.problems import Problem, closest, listed
from llmops_kernel.config.reading.aliases import with_own_names
from llmops_kernel.config.reading.check import Data, expand, leaves
from llmops_kernel.config.reading.document import (
    OVERRIDE,
    READ_ERRORS,
    Origin,
    Origins,
    Path,
    parse_value,
)

Overrides = Mapping[str, Any] | Sequence[str]


def apply_overrides(
    model: type[Section], data: Mapping[str, Any], overrides: Overrides, *, origins: Origins
) -> tuple[Data, list[Problem]]:
    """Return new data with the overrides applied, in the config's own names.

    The last override for a field wins.
    """
    merged: Data = {str(key): value for key, value in data.items()}
    problems: list[Problem] = []
    for given in _each(overrides):
        if isinstance(given, Problem):
            problems.append(given)
            continue
        key, value, origin = given
        path = _resolve(model, key, origin)
        if isinstance(path, Problem):
            problems.append(path)
        else:
            _set(model, merged, path, value, origins=origins, origin=origin)
    own, clashes = with_own_names(model, merged, origins=origins)
    return own, [*problems, *clashes]


_MAX_PARTS = 32
"""Limit for the name in an override: each part is a call deeper when its value is laid over."""
Given = tuple[str, Any, Origin]


def is_override(word: str) -> bool:
    """Return whether a word of a command line is an override, where it can be a file as well."""
    return "=" in word and not os.path.exists(word)


def _each(overrides: Overrides) -> Iterator[Given | Problem]:
    if isinstance(overrides, Mapping):
        for key, value in overrides.items():
            yield str(key), value, Origin(f"{OVERRIDE}{key}={_short(value)}")
        return
    for text in [overrides] if isinstance(overrides, str) else overrides:
        yield _parsed(text)


def _parsed(text: str) -> Given | Problem:
    key, equals, written = text.partition("=")
    key, written = key.strip().lstrip("-"), written.strip()
    file = OVERRIDE + text
    if not equals or not key:
        hint = "write section.field=value, for example optimizer.learning_rate=1e-4"
        return Problem(path="", message="not of the form key=value", suggestion=hint, file=file)
    try:
        value = parse_value(written)
    except READ_ERRORS:
        value = written  # such as `s3://a: b` or `*.jsonl`: a text that YAML would want quoted
    scalar = not isinstance(value, dict | list)
    return key, value, Origin(file, text=written.strip("\"'") if scalar else None)


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else text[:39] + "…"


def _resolve(model: type[Section], key: str, origin: Origin) -> Path | Problem:
    """Return the full path of a key."""
    name = key.replace("-", "_")
    path = tuple(name.split("."))
    if len(path) > _MAX_PARTS:
        hint = "the deepest field has five parts"
        message = f"a name of {len(path):,} parts, at most {_MAX_PARTS} are read"
        return Problem(path=f"{key[:40]}…", message=message, suggestion=hint, file=OVERRIDE + "…")
    if path[0] in model.model_fields:
        return path
    if len(path) == 1:
        owners = [leaf for leaf in leaves(model) if leaf[-1] == name]
        if len(owners) == 1:
            return owners[0]
        alias = model.aliases.get(name) if issubclass(model, Config) else None
        if alias is not None:
            return alias.path if alias.is_plain else path
        meant = tuple(ALIASES.get(name, "").split("."))
        if owners and meant in owners:
            return meant
        if owners:
            choices = " or ".join(".".join(owner) for owner in owners)
            hint = f'write {choices}, in Python as **{{"{".".join(owners[0])}": ...}}'
            return Problem(path=key, message="several sections have this field", suggestion=hint,
                           file=origin.file)  # fmt: skip
    return Problem(
        path=key, message="unknown field", suggestion=_meant(model, name), file=origin.file
    )


def _meant(model: type[Section], name: str) -> str:
    if name in ALIASES:
        return f"did you mean {ALIASES[name]}?"
    dotted = {".".join(path): ".".join(path) for path in leaves(model)}
    if "." not in name:
        dotted = {path.rpartition(".")[2]: path for path in dotted}
    match = closest(name, dotted)
    if match:
        return f"did you mean {dotted[match]}?"
    return f"the sections are {listed(model.model_fields, limit=14)}"


def _set(
    model: type[Section],
    data: Data,
    path: Path,
    value: Any,
    *,
    origins: Origins,
    origin: Origin,
) -> None:
    """Set a value; a mapping is merged into the section that is there."""
    name = path[0]
    field = model.model_fields.get(name)
    section = section_of(field.annotation) if field else None
    if section is None:
        _set_plain(data, path, value, origins=origins, origin=origin)
        return
    below = expand(section, data.get(name))
    data[name] = below = below if isinstance(below, dict) else {}
    if len(path) > 1:
        base = below.get(path[1])
        if len(path) > 2:
            base = _items(section, path[1], base)
        below[path[1]] = _laid_over(base, path[2:], value)
        origins.put(path, origin)
        _drop_other_variants(section, below, name, origins)
        return
    if value is None and section.shorthand is None:
        data[name] = {}
        return
    given = {section.shorthand: None} if value is None else expand(section, value)
    if not isinstance(given, dict):
        data[name] = value  # the check reports that this is not a section
        origins.put(path, origin)
        return
    for key, inner in given.items():
        below[str(key)] = inner
        origins.put((name, str(key)), Origin(origin.file, text=_text_of(value, origin)))
    _drop_other_variants(section, below, name, origins)


def _items(section: type[Section], name: str, value: Any) -> Any:
    """Return a list of sections with its plain values expanded, so that one can be changed."""
    field = fields_of(section).get(name)
    each = item_section(field) if field else None
    if each is None or not isinstance(value, list | tuple):
        return value
    return [expand(each, item) for item in value]


def _drop_other_variants(section: type[Section], below: Data, name: str, origins: Origins) -> None:
    """Drop the fields of the variant that an override has replaced by another.

    What another override sets stays, so that the check can refuse it.
    """
    if not issubclass(section, Choice) or section.shorthand is None:
        return
    if not origins.of((name, section.shorthand)).is_override:
        return
    variant = section.variants.get(below.get(section.shorthand))
    if variant is None:
        return
    for key in list(below):
        foreign = key not in variant.model_fields and section.variants.owners(key)
        if foreign and not origins.of((name, key)).is_override:
            del below[key]


def _set_plain(data: Data, path: Path, value: Any, *, origins: Origins, origin: Origin) -> None:
    merged = isinstance(value, Mapping) and isinstance(data.get(path[0]), Mapping)
    base = data.get(path[0])
    if merged and len(path) == 1:
        data[path[0]] = {**dict(base or {}), **value}
        for key in value:
            origins.put((*path, str(key)), Origin(origin.file))
        return
    data[path[0]] = _laid_over(base, path[1:], value)
    origins.put(path, origin)


def _laid_over(base: Any, path: Path, value: Any) -> Any:
    """Return `base` with the value at `path` below it."""
    if not path:
        return value.model_dump() if isinstance(value, BaseModel) else value
    if isinstance(base, list) and path[0].isdecimal() and int(path[0]) < len(base):
        number = int(path[0])
        return [*base[:number], _laid_over(base[number], path[1:], value), *base[number + 1 :]]
    inside = dict(base) if isinstance(base, Mapping) else {}
    # Deeper keys belong to a free mapping (`training_arguments.optim`): the rest stays.
    inside[path[0]] = _laid_over(inside.get(path[0]), path[1:], value)
    return inside


def _text_of(value: Any, origin: Origin) -> str | None:
    return None if isinstance(value, Mapping | BaseModel) else origin.text
