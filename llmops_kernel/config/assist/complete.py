"""Suggest and explain what is at a cursor: fields, values and files; read from the schema."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path as FilePath
from typing import Literal

from llmops_kernel.config.assist.cursor import (
    ITEM,
    MOST_CHARACTERS,
    Cursor,
    Entry,
    Outline,
    cursor_at,
)
from llmops_kernel.config.assist.file_kinds import Kind
from llmops_kernel.config.assist.schema import Schema, about_section, default_words, find
from llmops_kernel.config.models.sections import CATALOGUE
from llmops_kernel.config.names import (
    ALIASES,
    OWNED,
    OWNED_PREFIXES,
    TRACKERS,
    TRAINING_ARGUMENTS,
    VALUE_ALIASES,
    Alias,
)
from llmops_kernel.config.problems import Path

_ARGUMENT = "Argument of Transformers' `TrainingArguments`."
_MOST_FILES = 200
_HIDDEN = ("__pycache__", "node_modules")


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A suggestion; columns are of the cursor's line."""

    label: str
    insert: str
    kind: Literal["field", "value", "file"]
    detail: str
    documentation: str
    replace_from: int
    replace_to: int


@dataclass(frozen=True, kw_only=True)
class Hover:
    """The explanation of a key or value; `line` counts from 1, columns from 0."""

    line: int
    column: int
    end_column: int
    title: str
    text: str
    """Markdown."""


def complete(
    kind: Kind, text: str, *, line: int, column: int, folder: FilePath | None = None
) -> list[Completion]:
    """Return suggestions, best first.

    `line` counts from 1, `column` from 0; relative paths of files start at `folder`.
    """
    cursor = cursor_at(text, line=line, column=column)
    if cursor is None:
        return []
    root = kind.schema_in(text)
    _, section = find(root, cursor.path)
    in_item = bool(cursor.path) and cursor.path[-1] == ITEM
    if cursor.is_value and not (in_item and section is not None):
        return list(_values(kind, root, cursor, folder))
    suggested = _fields(root, section, cursor)
    if cursor.is_value and section is not None and "shorthand" in section:
        suggested = chain(suggested, _values(kind, root, cursor, folder))
    return list(suggested)


def _fields(root: Schema, section: Schema | None, cursor: Cursor) -> Iterator[Completion]:
    if section is None:
        if cursor.path == ("training_arguments",):
            yield from _arguments(cursor)
        return
    required = section.get("required", ())
    properties: dict[str, Schema] = section["properties"]
    missing = {name: field for name, field in properties.items() if name not in cursor.siblings}
    for name in sorted(missing, key=lambda name: name not in required):
        yield _field(cursor, name, name, missing[name], is_required=name in required)
    for alias, target in ALIASES.items():
        name = target.rpartition(".")[2]
        if not _typed(cursor, alias) or name.startswith(cursor.prefix) or alias == name:
            continue
        own, path = missing.get(name), tuple(target.split("."))
        if own is not None and (len(path) == 1 or find(root, path)[0] is own):
            is_required = name in required
            yield _field(cursor, f"{alias} → {name}", name, own, is_required=is_required)


def _field(
    cursor: Cursor, label: str, name: str, field: Schema, *, is_required: bool
) -> Completion:
    is_section = "properties" in field
    insert = name if cursor.has_colon else f"{name}: "
    if is_section and not cursor.has_colon and not cursor.in_flow:
        insert = f"{name}:\n{' ' * (cursor.indent + 2)}"
    detail = "section" if is_section else field["expected"]
    if is_required:
        detail += " (required)"
    elif not is_section and (words := default_words(field)):
        detail += f" (default {words})"
    return _completion(cursor, label, insert, "field", detail, field["description"])


def _arguments(cursor: Cursor) -> Iterator[Completion]:
    """Suggest Transformers' arguments, without those that a field of the config sets."""
    for name in sorted(TRAINING_ARGUMENTS - OWNED.keys() - cursor.siblings):
        if not name.startswith(tuple(OWNED_PREFIXES)):
            insert = name if cursor.has_colon else f"{name}: "
            yield _completion(cursor, name, insert, "field", "Transformers", _ARGUMENT)


def _values(
    kind: Kind, root: Schema, cursor: Cursor, folder: FilePath | None
) -> Iterator[Completion]:
    path = cursor.path
    in_item = bool(path) and path[-1] == ITEM
    field, section = find(root, path)
    if section is not None:
        if "shorthand" not in section:
            return
        path = (*path, section["shorthand"])
        field, _ = find(root, path)
    if field is None:
        return
    about_it = field["description"]
    if path == ("provider",):
        for name in kind.models:
            yield _completion(cursor, name, name, "value", "", about_it)
        return
    is_required = path[-1] in (find(root, path[:-1])[1] or {}).get("required", ())
    default = "" if is_required else default_words(field)
    for value, detail in _known_values(field, path, cursor, default=default, in_item=in_item):
        insert = value.partition(" → ")[2] or value
        yield _completion(cursor, value, insert, "value", detail, about_it)
    suffixes = kind.files.get(".".join(path))
    if folder is not None and suffixes is not None:
        for name, detail in paths_below(folder, cursor.prefix, suffixes=suffixes):
            yield _completion(cursor, name, name, "file", detail, about_it)


def _known_values(
    field: Schema, path: Path, cursor: Cursor, *, default: str, in_item: bool
) -> Iterator[tuple[str, str]]:
    options = (field, *field.get("anyOf", ()))
    choices = [value for option in options for value in option.get("enum", ())]
    allowed = [value for value in choices if not isinstance(value, bool)]
    values = list(allowed)
    if field.get("type") == "boolean" or True in choices:
        values += ["true", "false"]
    if path == ("model", "id"):
        values += CATALOGUE
    if path[:1] == ("report_to",):
        values += [name if in_item else f"[{name}]" for name in TRACKERS]
    if field.get("nullable") and not in_item:
        values.append("null")
    # Return after `5` must not make it the default 512.
    if default not in ("", *values) and not in_item and not cursor.prefix:
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


def paths_below(
    folder: FilePath, prefix: str, *, suffixes: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """Yield (relative path, description) of folders and of files with these extensions.

    Nothing outside `folder` is listed, whatever `prefix` says.
    """
    above, slash, _ = prefix.strip("\"'").rpartition("/")
    if slash and not above:
        return
    try:
        start = (folder / above).resolve()
        if "\0" in above or not start.is_relative_to(folder.resolve()):
            return
        with os.scandir(start) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)[:_MOST_FILES]
    except (OSError, ValueError, RuntimeError):
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _HIDDEN:
            continue
        name = f"{above}/{entry.name}" if above else entry.name
        if _is_folder(entry):
            yield f"{name}/", "folder"
        elif entry.name.endswith(suffixes) and suffixes:
            yield name, _size(entry)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # A link to itself.


def _size(entry: os.DirEntry[str]) -> str:
    try:
        kib = entry.stat().st_size / 1024
    except OSError:
        return "file"
    return f"{kib / 1024:.1f} MiB" if kib >= 1024 else f"{kib:.1f} KiB"


# --- Explanations ---


def hover(kind: Kind, text: str, *, line: int, column: int) -> Hover | None:
    """Return the explanation at a position; None where there is no known key or value."""
    if len(text) > MOST_CHARACTERS:
        return None
    outline = Outline(text)
    if not 0 < line <= len(outline.lines) or not 0 <= column <= len(outline.lines[line - 1]):
        return None
    start = outline.starts[line - 1]
    line_end = start + len(outline.lines[line - 1])
    entry = _entry_at(outline.entries, start + column)
    explained = _explained(kind.schema_in(text), entry.path, kind.aliases) if entry else None
    if entry is None or explained is None:
        return None
    on_key = entry.key_start <= start + column < entry.key_end
    low, high = (entry.key_start, entry.key_end) if on_key else (entry.value_start, entry.value_end)
    return Hover(
        line=line,
        column=max(low, start) - start,
        end_column=min(high, line_end) - start,
        title=".".join(entry.path),
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


def _explained(root: Schema, path: Path, aliases: Mapping[str, Alias]) -> str | None:
    field, _ = find(root, path)
    if field is not None:
        parent = find(root, path[:-1])[1] or {}
        return _about_field(field, is_required=path[-1] in parent.get("required", ()))
    if len(path) == 2 and path[0] == "training_arguments" and path[1] in TRAINING_ARGUMENTS:
        return _ARGUMENT
    alias = aliases.get(path[-1]) or aliases.get(".".join(path))
    if alias is not None and path[:-1] in ((), alias.path[:-1]):
        return f"Same as `{alias.field}`.\n\n{_explained(root, alias.path, {})}"
    parent_field, section = find(root, path[:-1])
    if parent_field is not None and section is None:
        return parent_field["description"] or None
    return None


def _about_field(field: Schema, *, is_required: bool) -> str:
    if "properties" in field:
        return "\n\n".join(dict.fromkeys((field["description"], about_section(field))))
    default = "Required" if is_required else f"Default `{default_words(field)}`"
    expected = field["expected"]
    return f"{field['description']}\n\n{expected[:1].upper()}{expected[1:]}. {default}."
