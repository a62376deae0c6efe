"""Describe a kind of config for a form: one JSON schema without references."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from llmops_kernel.config.assist.fields import about_section, is_kind, is_nullable
from llmops_kernel.config.assist.file_kinds import Kind
from llmops_kernel.config.field_docs import about
from llmops_kernel.config.models.choice import Choice, widest
from llmops_kernel.config.models.describe import choices, expected, members, pattern_of, section_of
from llmops_kernel.config.models.section import Section

Schema = dict[str, Any]
_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}
_BOUNDS: tuple[tuple[type, str, str], ...] = (
    (annotated_types.Ge, "ge", "minimum"),
    (annotated_types.Gt, "gt", "exclusiveMinimum"),
    (annotated_types.Le, "le", "maximum"),
    (annotated_types.Lt, "lt", "exclusiveMaximum"),
)


def form_schema(kind: Kind, *, provider: str | None = None) -> Schema:
    """Return nested objects; a field that may be `null` is marked `nullable`.

    Besides JSON schema's own keys each field has `expected`: what it takes, in words; and `when`
    if it exists for some variants of its section only. A kind with several models has one form
    for each `provider`, which the form itself can change.
    """
    schema = {"title": kind.title, **_section(widest(kind.model_of({"provider": provider})))}
    if kind.models:
        schema["properties"]["provider"]["enum"] = list(kind.models)
    return schema


def _section(section: type[Section]) -> Schema:
    fields = section.model_fields
    required = [name for name, field in fields.items() if field.is_required()]
    properties = {name: _field(name, field) for name, field in fields.items()}
    if issubclass(section, Choice):
        _limit_to_variants(section, properties)
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _limit_to_variants(section: type[Choice], properties: dict[str, Schema]) -> None:
    """Name for each field the values of the choosing field with which it exists."""
    for name, schema in properties.items():
        owners = section.variants.owners(name)
        if len(owners) < len(section.variants.names):
            schema["when"] = {section.shorthand: owners}


def _field(name: str, field: FieldInfo) -> Schema:
    section = section_of(field.annotation)
    if section is not None:
        description = about(field) or about_section(section)
        return {"title": name, "description": description, **_section(section)}
    schema: Schema = {
        "title": name,
        "description": about(field),
        "expected": expected(field),
        **_type(field),
        **_limits(field),
    }
    if is_nullable(field):
        schema["nullable"] = True
    if not field.is_required():
        default = field.get_default(call_default_factory=True)
        if default is not None:
            schema["default"] = list(default) if isinstance(default, tuple) else default
    return schema


def _type(field: FieldInfo) -> Schema:
    allowed = choices(field)
    if allowed and is_kind(field, bool):
        return {"enum": [True, False, *allowed]}
    if allowed:
        return {"type": "string", "enum": allowed}
    kinds = [_of(member) for member in members(field.annotation) if member is not type(None)]
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _of(member: Any) -> Schema:
    origin, arguments = get_origin(member), get_args(member)
    if origin in (tuple, list):
        return {"type": "array", "items": _of(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(arguments[1])}
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if hasattr(member, "__metadata__"):
        return _of(member.__origin__)
    if isinstance(member, type) and issubclass(member, Section):
        return _section(member)
    return {"type": _TYPES[member]} if member in _TYPES else {}


def _limits(field: FieldInfo) -> Schema:
    found: Schema = {}
    for item in field.metadata:
        for bound, attribute, word in _BOUNDS:
            if isinstance(item, bound):
                found[word] = getattr(item, attribute)
    pattern = pattern_of(field)
    if pattern is not None:
        found |= {"pattern": pattern, "patternWords": expected(field)}
    return found
