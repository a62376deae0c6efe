"""Suggest fields, values and files at a cursor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path as FilePath
from typing import Literal

from pydantic.fields import FieldInfo

from llmops_kernel.config.assist.fields import (
    about_section,
    default_words,
    field_at,
    is_kind,
    is_nullable,
    section_at,
    takes,
)
from llmops_kernel.config.assist.file_kinds import Kind
from llmops_kernel.config.assist.paths import paths_below
from llmops_kernel.config.assist.text.cursor import Cursor, cursor_at
from llmops_kernel.config.assist.text.entries import ITEM
from llmops_kernel.config.field_docs import about
from llmops_kernel.config.models.describe import choices, section_of
from llmops_kernel.config.models.section import Section
from llmops_kernel.config.models.sections import CATALOGUE
from llmops_kernel.config.names import (
    ALIASES,
    OWNED,
    OWNED_PREFIXES,
    TRACKERS,
    TRAINING_ARGUMENTS,
    VALUE_ALIASES,
)
from llmops_kernel.config.reading.document import Path


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One suggestion; columns are of the cursor's line."""

    label: str
    insert: str
    kind: Literal["field", "value", "file"]
    detail: str
    documentation: str
    replace_from: int
    replace_to: int


def complete(
    kind: Kind, text: str, *, line: int, column: int, folder: FilePath | None = None
) -> list[Completion]:
    """Return suggestions, best first.

    `line` counts from 1, `column` from 0; relative paths of files start at `folder`.
    """
    cursor = cursor_at(text, line=line, column=column)
    if cursor is None:
        return []
    model = kind.view_in(text)
    section = section_at(model, cursor.path)
    in_item = bool(cursor.path) and cursor.path[-1] == ITEM
    found: Iterator[Completion]
    if not cursor.is_value or (in_item and section is not None):
        found = _fields(model, section, cursor)
        if cursor.is_value and section is not None and section.shorthand is not None:
            found = chain(found, _values(kind, model, cursor, folder))
    else:
        found = _values(kind, model, cursor, folder)
    return list(found)


def _fields(
    root: type[Section], section: type[Section] | None, cursor: Cursor
) -> Iterator[Completion]:
    if section is None:
        if cursor.path == ("training_arguments",):
            yield from _arguments(cursor)
        return
    missing = {n: f for n, f in section.model_fields.items() if n not in cursor.siblings}
    for name in sorted(missing, key=lambda name: not missing[name].is_required()):
        yield _field(cursor, name, name, missing[name])
    for alias, target in ALIASES.items():
        name = target.rpartition(".")[2]
        if not _typed(cursor, alias) or name.startswith(cursor.prefix):
            continue
        own = missing.get(name)
        if own is not None and alias != name and field_at(root, (*cursor.path, name)) is own:
            path = tuple(target.split("."))
            if len(path) == 1 or field_at(root, path) is own:
                yield _field(cursor, f"{alias} → {name}", name, own)


def _field(cursor: Cursor, label: str, name: str, field: FieldInfo) -> Completion:
    section = section_of(field.annotation)
    insert = name if cursor.has_colon else f"{name}: "
    if section is not None and not cursor.has_colon and not cursor.in_flow:
        insert = f"{name}:\n{' ' * (cursor.indent + 2)}"
    words = default_words(field)
    documentation = about(field) or (about_section(section) if section else "")
    detail = "section" if section else takes(field)
    if words:
        detail += f" ({words})" if words == "required" else f" (default {words})"
    return _completion(cursor, label, insert, "field", detail, documentation)


def _arguments(cursor: Cursor) -> Iterator[Completion]:
    """Suggest Transformers' arguments, without those that a field of the config sets."""
    for name in sorted(TRAINING_ARGUMENTS - OWNED.keys() - cursor.siblings):
        if not name.startswith(tuple(OWNED_PREFIXES)):
            insert = name if cursor.has_colon else f"{name}: "
            about_it = "Argument of Transformers' `TrainingArguments`."
            yield _completion(cursor, name, insert, "field", "Transformers", about_it)


def _values(
    kind: Kind, root: type[Section], cursor: Cursor, folder: FilePath | None
) -> Iterator[Completion]:
    path = cursor.path
    in_item = bool(path) and path[-1] == ITEM
    section = section_at(root, path)
    if section is not None:
        if section.shorthand is None:
            return
        path = (*path, section.shorthand)
    field = field_at(root, path)
    if field is None:
        return
    about_it = about(field)
    if path == ("provider",):
        for name in kind.models:
            yield _completion(cursor, name, name, "value", "", about_it)
        return
    for value, detail in _known_values(field, path, cursor, in_item=in_item):
        insert = value.partition(" → ")[2] or value
        yield _completion(cursor, value, insert, "value", detail, about_it)
    suffixes = kind.files.get(".".join(path))
    if folder is not None and suffixes is not None:
        for name, detail in paths_below(folder, cursor.prefix, suffixes=suffixes):
            yield _completion(cursor, name, name, "file", detail, about_it)


def _known_values(
    field: FieldInfo, path: Path, cursor: Cursor, *, in_item: bool
) -> Iterator[tuple[str, str]]:
    default = default_words(field)
    allowed = choices(field)
    values = [*allowed, *(["true", "false"] if is_kind(field, bool) else [])]
    if path == ("model", "id"):
        values += CATALOGUE
    if path[:1] == ("report_to",):
        values += [name if in_item else f"[{name}]" for name in TRACKERS]
    if is_nullable(field) and not in_item:
        values.append("null")
    # Return after `5` must not make it the default 512.
    if default not in ("", "required", *values) and not in_item and not cursor.prefix:
        values.append(default)
    for value in values:
        yield value, "the default" if value == default else _detail(value, path)
    for alias, value in VALUE_ALIASES.items():
        if value in allowed and alias not in allowed and _typed(cursor, alias):
            yield f"{alias} → {value}", "another spelling"


def _detail(value: str, path: Path) -> str:
    if path == ("model", "id") and value in CATALOGUE:
        return "built-in catalogue"
    return "tracker" if path[:1] == ("report_to",) and value != "null" else ""


def _typed(cursor: Cursor, name: str) -> bool:
    return bool(cursor.prefix) and name.startswith(cursor.prefix.lower())


def _completion(
    cursor: Cursor,
    label: str,
    insert: str,
    kind: Literal["field", "value", "file"],
    detail: str,
    documentation: str,
) -> Completion:
    return Completion(
        label=label,
        insert=insert,
        kind=kind,
        detail=detail,
        documentation=documentation,
        replace_from=cursor.start,
        replace_to=cursor.end,
    )
