"""Explain the key or value under the mouse pointer."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic.fields import FieldInfo

from llmops_kernel.config.assist.fields import (
    about_section,
    default_words,
    field_at,
    section_at,
    takes,
)
from llmops_kernel.config.assist.file_kinds import Kind
from llmops_kernel.config.assist.text.entries import MOST_CHARACTERS, Entry
from llmops_kernel.config.assist.text.outline import Outline
from llmops_kernel.config.field_docs import about
from llmops_kernel.config.models.describe import section_of
from llmops_kernel.config.models.section import Section
from llmops_kernel.config.names import TRAINING_ARGUMENTS
from llmops_kernel.config.reading.document import Path


@dataclass(frozen=True, kw_only=True)
class Hover:
    """The explanation of a key or value; `line` counts from 1, columns from 0."""

    line: int
    column: int
    end_column: int
    title: str
    text: str
    """Markdown."""


def hover(kind: Kind, text: str, *, line: int, column: int) -> Hover | None:
    """Return the explanation at a position; None where there is no known key or value."""
    if len(text) > MOST_CHARACTERS:
        return None
    outline = Outline(text)
    if not 0 < line <= len(outline.lines) or not 0 <= column <= len(outline.lines[line - 1]):
        return None
    start = outline.starts[line - 1]
    line_end = start + len(outline.lines[line - 1])
    found = _entry_at(outline.entries, start + column)
    explained = _explained(kind.view_in(text), found.path) if found else None
    if found is None or explained is None:
        return None
    on_key = found.key_start <= start + column < found.key_end
    low, high = (found.key_start, found.key_end) if on_key else (found.value_start, found.value_end)
    return Hover(
        line=line,
        column=max(low, start) - start,
        end_column=min(high, line_end) - start,
        title=".".join(found.path),
        text=explained,
    )


def _entry_at(entries: list[Entry], offset: int) -> Entry | None:
    """Return the innermost entry at an offset: entries in brackets are nested."""
    there = [
        entry
        for entry in entries
        if entry.key_start <= offset < entry.key_end
        or entry.value_start <= offset < entry.value_end
    ]
    return max(there, key=lambda entry: (len(entry.path), entry.key_start), default=None)


def _explained(model: type[Section], path: Path) -> str | None:
    field = field_at(model, path)
    if field is not None:
        return _about_field(field)
    if len(path) == 2 and path[0] == "training_arguments" and path[1] in TRAINING_ARGUMENTS:
        return "Argument of Transformers' `TrainingArguments`."
    parent = field_at(model, path[:-1]) if path else None
    if parent is not None and section_at(model, path[:-1]) is None:
        return about(parent) or None
    return None


def _about_field(field: FieldInfo) -> str:
    section = section_of(field.annotation)
    if section is not None:
        return "\n\n".join(part for part in (about(field), about_section(section)) if part)
    words = default_words(field)
    default = "Required" if words == "required" else f"Default `{words}`"
    wanted = takes(field)
    return f"{about(field)}\n\n{wanted[:1].upper()}{wanted[1:]}. {default}."
