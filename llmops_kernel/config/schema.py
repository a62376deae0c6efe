"""The JSON schema of training configs, for editors that complete and check while one types."""

from __future__ import annotations

from typing import Any

from llmops_kernel.config.describe import section_of
from llmops_kernel.config.sections import Section
from llmops_kernel.config.train import TrainingConfig

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def training_schema() -> dict[str, Any]:
    """Draft 2020-12; a section with a shorthand may also be its plain value."""
    schema = TrainingConfig.model_json_schema()
    schema["properties"] = {
        name: _with_shorthand(name, wanted, schema["$defs"])
        for name, wanted in schema["properties"].items()
    }
    return {"$schema": _DRAFT, **schema}


def _with_shorthand(
    name: str, wanted: dict[str, Any], definitions: dict[str, Any]
) -> dict[str, Any]:
    section: type[Section] | None = section_of(TrainingConfig.model_fields[name].annotation)
    if section is None:
        return wanted
    reference = {"$ref": wanted["$ref"]}
    if section.shorthand is None:
        return {**wanted, "description": _about(section)}
    plain = definitions[section.__name__]["properties"][section.shorthand]
    rest = {key: value for key, value in wanted.items() if key != "$ref"}
    return {**rest, "anyOf": [reference, plain], "description": _about(section)}


def _about(section: type[Section]) -> str:
    names = ", ".join(section.model_fields)
    short = f" A plain value sets `{section.shorthand}`." if section.shorthand else ""
    return f"Fields: {names}.{short}"
