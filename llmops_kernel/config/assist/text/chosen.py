"""Which provider and which variants a half-written text chooses."""

from __future__ import annotations

from typing import Any

from llmops_kernel.config.assist.text.entries import MOST_CHARACTERS, unquoted
from llmops_kernel.config.assist.text.outline import Outline
from llmops_kernel.config.models.choice import choices_of
from llmops_kernel.config.models.section import Section


def choices_in(model: type[Section], text: str) -> dict[str, Any]:
    """Return `{"provider": "kuberay"}`, `{"method": {"type": "full"}}`: only what is written."""
    if len(text) > MOST_CHARACTERS:
        return {}
    sections = {name: section.shorthand for name, section in choices_of(model)}
    chosen: dict[str, Any] = {}
    for entry in Outline(text).entries:
        value = unquoted(text[entry.value_start : entry.value_end])
        name = entry.path[0]
        if entry.path == ("provider",) and value:
            chosen["provider"] = value
        elif name in sections and entry.path[1:] == (sections[name],) and value:
            chosen[name] = {sections[name]: value}
        elif name in sections and len(entry.path) == 1 and value.isidentifier():
            chosen.setdefault(name, {sections[name]: value})
    return chosen
