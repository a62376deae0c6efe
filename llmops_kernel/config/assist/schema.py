"""The JSON schema of a config, for editors that complete and check while the user types."""

from __future__ import annotations

from typing import Any, cast

from llmops_kernel.config.models.choice import Choice, variant_view, widest
from llmops_kernel.config.models.describe import item_section, section_of
from llmops_kernel.config.models.section import Section

Schema = dict[str, Any]
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(model: type[Section]) -> Schema:
    """Return the schema of a config; a section with a shorthand may also be its plain value."""
    schema = widest(model).model_json_schema()
    schema["title"] = model.__name__
    _allow_short_items(model, schema.get("$defs", {}))
    schema["properties"] = {
        name: _with_shorthand(model, name, wanted, schema.get("$defs", {}))
        for name, wanted in schema["properties"].items()
    }
    return {"$schema": _DRAFT, **schema}


def _allow_short_items(model: type[Section], definitions: dict[str, Schema]) -> None:
    """Allow the plain value of an item's shorthand in lists that a text may replace."""
    for outer in model.model_fields.values():
        section = section_of(outer.annotation)
        for name, field in section.model_fields.items() if section is not None else ():
            each = item_section(field)
            if section is None or each is None or each.shorthand is None:
                continue
            wanted = definitions[section.__name__]["properties"][name]
            plain = definitions[each.__name__]["properties"][each.shorthand]
            for option in wanted.get("oneOf", (wanted,)):
                if option.get("type") == "array":
                    option["items"] = {"anyOf": [option["items"], {"type": plain["type"]}]}


def _with_shorthand(
    model: type[Section], name: str, wanted: Schema, definitions: dict[str, Schema]
) -> Schema:
    section = section_of(widest(model).model_fields[name].annotation)
    if section is None:
        return wanted
    reference = {"$ref": f"#/$defs/{section.__name__}"}
    about = _about(section)
    if section.shorthand is None:
        return {**wanted, "description": about}
    plain = _plain(definitions[section.__name__]["properties"][section.shorthand])
    if issubclass(section, Choice):
        definitions[section.__name__] = _variants(section)
    rest = {key: value for key, value in wanted.items() if key != "$ref"}
    return {**rest, "anyOf": [reference, plain], "description": about}


def _plain(wanted: Schema) -> Schema:
    """Return the schema of a shorthand's value: a list is written with its key."""
    options = [option for option in wanted.get("oneOf", ()) if option.get("type") != "array"]
    rest = {key: value for key, value in wanted.items() if key != "oneOf"}
    return {**rest, **options[0]} if options else wanted


def _variants(section: type[Choice]) -> Schema:
    """Return one schema for each variant: only the default one may leave its name out."""
    options = []
    for variant in section.variants:
        shorthand = cast("str", section.shorthand)
        option = variant_view(variant).model_json_schema()
        option["properties"][shorthand] |= {"enum": [variant.variant_name]}
        if variant.variant_name != section.variants.default:
            option["required"] = sorted({shorthand, *option.get("required", ())})
        options.append(option)
    return {"anyOf": options}


def _about(section: type[Section]) -> str:
    names = ", ".join(section.model_fields)
    short = f" A plain value sets `{section.shorthand}`." if section.shorthand else ""
    return f"Fields: {names}.{short}"
