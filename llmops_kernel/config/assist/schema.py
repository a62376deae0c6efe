"""Two JSON schemas of a config: one for editors, one with our words for forms and completion.

`schema_of` is the standard one, which any editor can complete and check with. `described` has
nested objects without references; each field says what it takes in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import annotated_types

from llmops_kernel.config.assist.cursor import ITEM
from llmops_kernel.config.models.fields import (
    FieldSpec,
    SectionSpec,
    compact,
    spec_of,
)
from llmops_kernel.config.models.section import Section
from llmops_kernel.config.problems import Path

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
    return _section(spec_of(model), values)


def _section(spec: SectionSpec, values: Any = None, chosen: Any = None) -> Schema:
    fields = (spec if chosen is None else spec.chosen(chosen)).fields
    required = [name for name, field in fields.items() if field.is_required]
    inside = values if isinstance(values, Mapping) else {}
    is_any = values is None
    properties = {
        name: _field(name, field, None if is_any else inside.get(name, {}))
        for name, field in fields.items()
    }
    for name, owners in spec.owners.items():
        if name in properties and len(owners) < len(spec.variants):
            # The values of the choosing field with which the field exists.
            properties[name]["when"] = {spec.shorthand: owners}
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if spec.shorthand is not None:
        schema["shorthand"] = spec.shorthand
    return {**schema, "required": required} if required else schema


def _field(name: str, field: FieldSpec, values: Any) -> Schema:
    if field.section is not None:
        schema = {"title": name, **_section(field.section, values, values)}
        schema["description"] = field.about or about_section(schema)
        return schema
    schema = {
        "title": name,
        "description": field.about,
        "expected": field.expected,
        **_type(field),
        **_limits(field),
    }
    if type(None) in field.types:
        schema["nullable"] = True
    if not field.is_required and field.default is not None:
        schema["default"] = (
            list(field.default) if isinstance(field.default, tuple) else field.default
        )
    return schema


def _type(field: FieldSpec) -> Schema:
    if field.choices and bool in field.types:
        return {"enum": [True, False, *field.choices]}
    if field.choices and int not in field.types:
        return {"type": "string", "enum": field.choices}
    kinds = [_of(member) for member in field.types if member is not type(None)]
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
        return _section(spec_of(member))
    return {"type": _TYPES[member]} if member in _TYPES else {}


def _limits(field: FieldSpec) -> Schema:
    limits: Schema = {}
    for item in field.limits:
        for bound, attribute, word in _BOUNDS:
            if isinstance(item, bound):
                limits[word] = getattr(item, attribute)
    if field.pattern is not None:
        limits |= {"pattern": field.pattern, "patternWords": field.expected}
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
    sections = {n: f.section for n, f in spec_of(model).fields.items() if f.section is not None}
    for section in sections.values():
        _allow_short_items(section, definitions)
    for name, section in sections.items():
        short = _with_shorthand(section, schema["properties"][name], definitions)
        schema["properties"][name] = short
    return {"$schema": _DRAFT, **schema}


def _allow_short_items(section: SectionSpec, definitions: dict[str, Schema]) -> None:
    """Allow the plain value of an item's shorthand in lists that a text may replace."""
    for name, field in section.fields.items():
        if field.item is None or field.item.shorthand is None:
            continue
        written = definitions[section.model.__name__]["properties"][name]
        plain = definitions[field.item.model.__name__]["properties"][field.item.shorthand]
        for option in written.get("oneOf", (written,)):
            if option.get("type") == "array":
                option["items"] = {"anyOf": [option["items"], {"type": plain["type"]}]}


def _with_shorthand(spec: SectionSpec, own: Schema, definitions: dict[str, Schema]) -> Schema:
    short = f" A plain value sets `{spec.shorthand}`." if spec.shorthand else ""
    text = f"Fields: {', '.join(spec.fields)}.{short}"
    if spec.shorthand is None:
        return {**own, "description": text}
    name = spec.model.__name__
    rest = {key: value for key, value in own.items() if key != "$ref"}
    if spec.variants:
        rest.pop("default", None)  # It would be that of one variant.
        plain = _choosing(spec)
        definitions[name] = _variants(spec)
    else:
        plain = _plain(definitions[name]["properties"][spec.shorthand])
    return {**rest, "anyOf": [{"$ref": f"#/$defs/{name}"}, plain], "description": text}


def _plain(field: Schema) -> Schema:
    """Return the schema of a shorthand's value: a list is written with its key."""
    options = [option for option in field.get("oneOf", ()) if option.get("type") != "array"]
    rest = {key: value for key, value in field.items() if key != "oneOf"}
    return {**rest, **options[0]} if options else field


def _choosing(spec: SectionSpec) -> Schema:
    """Return the schema of the field that chooses a variant."""
    info = spec.fields[str(spec.shorthand)].info
    title = str(spec.shorthand).replace("_", " ").title()
    schema = {"default": info.default, "description": info.description, "enum": [*spec.variants]}
    return {**schema, "title": title, "type": "string"}


def _variants(spec: SectionSpec) -> Schema:
    """Return one schema for each variant: only the default one may leave its name out."""
    shorthand, options = str(spec.shorthand), []
    for name, variant in spec.variants.items():
        option = variant.model.model_json_schema()
        option["properties"][shorthand] = {**_choosing(spec), "enum": [name]}
        if name != spec.default:
            option["required"] = sorted({shorthand, *option.get("required", ())})
        options.append(option)
    return {"anyOf": options}
