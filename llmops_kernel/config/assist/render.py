"""Write a config's values as YAML, as a person would."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from llmops_kernel.config.assist.file_kinds import Kind
from llmops_kernel.config.models.choice import chosen_in, fields_of
from llmops_kernel.config.models.describe import compact, section_of
from llmops_kernel.config.models.section import Section
from llmops_kernel.config.problems import ABSENT
from llmops_kernel.config.reading.check import expand
from llmops_kernel.config.reading.document import dump, parse_value


def render(kind: Kind, data: Mapping[str, Any]) -> str:
    """Write the name, required fields and what differs from the defaults, without a check."""
    model = kind.model_of(data)
    kept = _pruned(model, data)
    named = model.model_fields.get("name")
    if model is not kind.model:
        kept = {"provider": data["provider"], **kept}
    if "name" not in kept and named is not None:
        kept = {"name": data.get("name") or named.default, **kept}
    return block(kept, spaced=True)


def block(data: Mapping[str, Any], *, indent: str = "", spaced: bool = False) -> str:
    """Block style; with `spaced` an empty line before and behind each section."""
    return "".join(f"{line}\n" for line in _lines(data, indent, spaced=spaced))


def _lines(data: Mapping[str, Any], indent: str, *, spaced: bool) -> Iterator[str]:
    before: Any = None
    for index, (key, value) in enumerate(data.items()):
        is_section = isinstance(value, Mapping) and bool(value)
        if spaced and index and (is_section or before):
            yield ""
        before = is_section
        if is_section:
            yield f"{indent}{inline(str(key))}:"
            yield from _lines(value, indent + "  ", spaced=False)
        else:
            yield f"{indent}{inline(str(key))}: {inline(value)}"


def inline(value: Any, *, flow: bool = False) -> str:
    """Return the value on one line, read back as the same value; `flow`: inside brackets."""
    if isinstance(value, Mapping):
        pairs = (f"{inline(str(k), flow=True)}: {inline(v, flow=True)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(inline(item, flow=True) for item in value) + "]"
    short = compact(value)
    for written in (short, dump(value).strip().removesuffix("\n...")):
        if _reads_back(written, value, flow=flow):
            return written
    return json.dumps(value, ensure_ascii=False)


def _reads_back(written: str, value: Any, *, flow: bool) -> bool:
    if "\n" in written or " #" in written or written.startswith("#"):
        return False
    try:
        read = parse_value(f"[{written}]")[0] if flow else parse_value(f"k: {written}")["k"]
    except (yaml.YAMLError, ValueError, KeyError, IndexError, TypeError):
        return False
    return bool(read == value and type(read) is type(value))


def _pruned(section: type[Section], data: Mapping[str, Any], chosen: Any = None) -> dict[str, Any]:
    """Return the data without defaults, in the model's order; unknown keys come last."""
    kept: dict[str, Any] = {}
    fields = fields_of(section, chosen)
    for name, field in fields.items():
        if name in data:
            value = _pruned_field(field, data[name])
            if value is not ABSENT:
                kept[name] = value
    return kept | {key: value for key, value in data.items() if key not in fields}


def _pruned_field(field: FieldInfo, value: Any) -> Any:
    section = section_of(field.annotation)
    if section is None:
        default = default_of(field)
        at_default = same(value, default) or (value is None and default is not ABSENT)
        return ABSENT if at_default and not field.is_required() else value
    below = expand(section, value)
    if not isinstance(below, dict):
        return value
    kept = _pruned(section, below, chosen_in(section, below))
    if section.shorthand is not None and list(kept) == [section.shorthand]:
        return kept[section.shorthand]
    return kept if kept or field.is_required() else ABSENT


def default_of(field: FieldInfo) -> Any:
    """Return the default as plain data; ABSENT for a required field."""
    if field.is_required():
        return ABSENT
    default = field.get_default(call_default_factory=True)
    if isinstance(default, Section):
        return default.model_dump(mode="json")
    return list(default) if isinstance(default, tuple) else default


def same(one: Any, other: Any) -> bool:
    """Equal as a config reads them: `1` is `1.0`, but `1` is not `true`."""
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
