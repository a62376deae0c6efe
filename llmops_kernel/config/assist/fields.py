"""Look up the field or section that a path of keys names."""

from __future__ import annotations

from typing import Any, get_origin

from pydantic.fields import FieldInfo

from llmops_kernel.config.assist.text.entries import ITEM
from llmops_kernel.config.models.describe import (
    compact,
    expected,
    item_section,
    members,
    section_of,
)
from llmops_kernel.config.models.section import Section
from llmops_kernel.config.reading.document import Path


def field_at(model: type[Section], path: Path) -> FieldInfo | None:
    """Return the field; for an item of a list, the field of the list."""
    field: FieldInfo | None = None
    inside: type[Section] | None = model
    for part in path:
        if is_item(part) and field is not None:
            inside = item_section(field)
            continue
        if inside is None or part not in inside.model_fields:
            return None
        field = inside.model_fields[part]
        inside = section_of(field.annotation)
    return field


def section_at(model: type[Section], path: Path) -> type[Section] | None:
    """Return the section whose keys are below `path`."""
    if not path:
        return model
    field = field_at(model, path)
    if field is None:
        return None
    return item_section(field) if is_item(path[-1]) else section_of(field.annotation)


def is_item(part: str) -> bool:
    return part == ITEM or part.isdecimal()


def is_kind(field: FieldInfo, kind: Any) -> bool:
    """Return whether a value may be a `kind`, such as `dict`, `tuple`, `bool`."""
    return any((get_origin(member) or member) is kind for member in members(field.annotation))


def is_nullable(field: FieldInfo) -> bool:
    return type(None) in members(field.annotation)


def about_section(section: type[Section]) -> str:
    """Return the names of a section's fields, for a section without a description."""
    short = f" A plain value sets `{section.shorthand}`." if section.shorthand else ""
    return f"Section with {', '.join(f'`{name}`' for name in section.model_fields)}.{short}"


def default_words(field: FieldInfo) -> str:
    """Return `2e-4`, or `required`, or an empty text for a section."""
    section = section_of(field.annotation)
    if field.is_required():
        return "required"
    if section is not None:
        return ""
    return compact(field.get_default(call_default_factory=True))


def takes(field: FieldInfo) -> str:
    """Return a phrase such as `a whole number of at least 1, or null`."""
    return expected(field)
