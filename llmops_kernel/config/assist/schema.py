"""Two JSON schemas of a config: one for editors, one with our words for forms and completion.

`schema_of` is the standard one, which any editor can complete and check with. `described` has
nested objects without references; each field says what it takes in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from llmops_kernel.config.assist.cursor import ITEM
from llmops_kernel.config.models.choice import Choice, chosen_in, fields_of
from llmops_kernel.config.models.describe import (
    choices,
    compact,
    expected,
    item_section,
    members,
    pattern_of,
    section_of,
)
from llmops_kernel.config.models.section import Section, about
from llmops_kernel.config.reading.document import Path

Schema = dict[str, Any]
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}
_BOUNDS: tuple[tuple[type, str, str], ...] = (
    (annotated_types.Ge, "ge", "minimum"),
    (annotated_types.Gt, "gt", "exclusiveMinimum"),
    (annotated_types.Le, "le", "maximum"),
    (annotated_types.Lt, "lt", "exclusiveMaximum"),
)


def described(model: type[Section], values: Mapping[str, Any] | None = None) -> Schema:
    """Return nested objects; a section with variants has the fields of the one in `values`.

    Besides JSON schema's own keys each field has `expected`: what it takes, in words; `nullable`
    if it may be `null`, and `when` if it exists for some variants of its section only. A section
    that may be written as a plain value names its field, `shorthand`. Without `values` the fields
    of all variants are there.
    """
    return _section(model, values)


def _section(section: type[Section], values: Any = None, chosen: Any = None) -> Schema:
    fields = fields_of(section, chosen)
    required = [name for name, field in fields.items() if field.is_required()]
    inside = values if isinstance(values, Mapping) else {}
    is_any = values is None
    properties = {
        name: _field(name, field, None if is_any else inside.get(name, {}))
        for name, field in fields.items()
    }
    if issubclass(section, Choice):
        _limit_to_variants(section, properties)
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if section.shorthand is not None:
        schema["shorthand"] = section.shorthand
    return {**schema, "required": required} if required else schema


def _limit_to_variants(section: type[Choice], properties: dict[str, Schema]) -> None:
    """Name for each field the values of the choosing field with which it exists."""
    for name, schema in properties.items():
        owners = section.variants.owners(name)
        if len(owners) < len(section.variants.names):
            schema["when"] = {section.shorthand: owners}


def _field(name: str, field: FieldInfo, values: Any) -> Schema:
    section = section_of(field.annotation)
    if section is not None:
        chosen = None if values is None else chosen_in(section, values)
        schema = {"title": name, **_section(section, values, chosen)}
        schema["description"] = about(field) or about_section(schema)
        return schema
    schema = {
        "title": name,
        "description": about(field),
        "expected": expected(field),
        **_type(field),
        **_limits(field),
    }
    if type(None) in members(field.annotation):
        schema["nullable"] = True
    if not field.is_required():
        default = field.get_default(call_default_factory=True)
        if default is not None:
            schema["default"] = list(default) if isinstance(default, tuple) else default
    return schema


def _type(field: FieldInfo) -> Schema:
    allowed = choices(field)
    if allowed and bool in members(field.annotation):
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
    limits: Schema = {}
    for item in field.metadata:
        for bound, attribute, word in _BOUNDS:
            if isinstance(item, bound):
                limits[word] = getattr(item, attribute)
    pattern = pattern_of(field)
    if pattern is not None:
        limits |= {"pattern": pattern, "patternWords": expected(field)}
    return limits


# --- Look-ups in a described schema ---


def find(root: Schema, path: Path) -> tuple[Schema | None, Schema | None]:
    """Return the field at a path, and the section whose keys are below it.

    The field of an item is that of its list; the section at the top is `root`.
    """
    field: Schema | None = None
    section: Schema | None = root
    for part in path:
        if field is not None and (part == ITEM or part.isdecimal()):
            options = (field, *field.get("anyOf", ()))
            items = (option.get("items", {}) for option in options)
            section = next((item for item in items if "properties" in item), None)
            continue
        field = (section or {}).get("properties", {}).get(part)
        if field is None:
            return None, None
        section = field if "properties" in field else None
    return field, section


def about_section(section: Schema) -> str:
    """Return the names of a section's fields, for a section without a description."""
    names = ", ".join(f"`{name}`" for name in section["properties"])
    short = f" A plain value sets `{section['shorthand']}`." if "shorthand" in section else ""
    return f"Section with {names}.{short}"


def default_words(field: Schema) -> str:
    """Return the default as it is written by hand: `2e-4`."""
    return compact(field.get("default"))


# --- The schema for editors ---


def schema_of(model: type[Section]) -> Schema:
    """Return the schema of a config; a section with a shorthand may also be its plain value."""
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    _allow_short_items(model, definitions)
    for name, field in model.model_fields.items():
        section = section_of(field.annotation)
        if section is not None:
            short = _with_shorthand(section, schema["properties"][name], definitions)
            schema["properties"][name] = short
    return {"$schema": _DRAFT, **schema}


def _allow_short_items(model: type[Section], definitions: dict[str, Schema]) -> None:
    """Allow the plain value of an item's shorthand in lists that a text may replace."""
    for outer in model.model_fields.values():
        section = section_of(outer.annotation)
        for name, field in section.model_fields.items() if section is not None else ():
            each = item_section(field)
            if section is None or each is None or each.shorthand is None:
                continue
            written = definitions[section.__name__]["properties"][name]
            plain = definitions[each.__name__]["properties"][each.shorthand]
            for option in written.get("oneOf", (written,)):
                if option.get("type") == "array":
                    option["items"] = {"anyOf": [option["items"], {"type": plain["type"]}]}


def _with_shorthand(section: type[Section], own: Schema, definitions: dict[str, Schema]) -> Schema:
    short = f" A plain value sets `{section.shorthand}`." if section.shorthand else ""
    text = f"Fields: {', '.join(fields_of(section))}.{short}"
    if section.shorthand is None:
        return {**own, "description": text}
    name = section.__name__
    rest = {key: value for key, value in own.items() if key != "$ref"}
    if issubclass(section, Choice):
        rest.pop("default", None)  # It would be that of one variant.
        plain = _choosing(section)
        definitions[name] = _variants(section)
    else:
        plain = _plain(definitions[name]["properties"][section.shorthand])
    return {**rest, "anyOf": [{"$ref": f"#/$defs/{name}"}, plain], "description": text}


def _plain(field: Schema) -> Schema:
    """Return the schema of a shorthand's value: a list is written with its key."""
    options = [option for option in field.get("oneOf", ()) if option.get("type") != "array"]
    rest = {key: value for key, value in field.items() if key != "oneOf"}
    return {**rest, **options[0]} if options else field


def _choosing(section: type[Choice]) -> Schema:
    """Return the schema of the field that chooses a variant."""
    field, names = fields_of(section)[str(section.shorthand)], list(section.variants.names)
    title = str(section.shorthand).replace("_", " ").title()
    schema = {"default": field.default, "description": field.description, "enum": names}
    return {**schema, "title": title, "type": "string"}


def _variants(section: type[Choice]) -> Schema:
    """Return one schema for each variant: only the default one may leave its name out."""
    options = []
    for variant in section.variants:
        shorthand, name = str(section.shorthand), variant.variant_name
        option = variant.model_json_schema()
        option["properties"][shorthand] = {**_choosing(section), "enum": [name]}
        if name != section.variants.default:
            option["required"] = sorted({shorthand, *option.get("required", ())})
        options.append(option)
    return {"anyOf": options}
