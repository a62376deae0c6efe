"""Write a form's values into a text; everything else keeps its comments, order and spelling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llmops_kernel.config.assist.fields import field_at, section_at
from llmops_kernel.config.assist.file_kinds import Kind
from llmops_kernel.config.assist.render import block, default_of, inline, render, same
from llmops_kernel.config.assist.text.chosen import choices_in
from llmops_kernel.config.models.choice import Choice, view_for
from llmops_kernel.config.models.section import Section
from llmops_kernel.config.problems import ABSENT
from llmops_kernel.config.reading.origins import Path
from llmops_kernel.config.reading.shape import expand
from llmops_kernel.config.reading.yaml_positions import Place, Places
from llmops_kernel.config.reading.yaml_source import parse_yaml
from llmops_kernel.errors import ConfigError


def merge(kind: Kind, text: str, data: Mapping[str, Any], *, whole: bool = False) -> str:
    """Return the text with the values of `data`.

    A field that `data` leaves out stays as it is; with `whole` it goes back to its default,
    and so does a field given as None. A text that cannot be edited line by line (not YAML, or
    values behind anchors) is replaced by a new one.
    """
    model = kind.model_of(data if whole or "provider" in data else choices_in(kind.model, text))
    written = _read(model, text)
    if written is None:
        return render(kind, data)
    model = view_for(model, data if whole else _laid_over(written, data))
    for path, value in _changes(model, written, data, whole=whole):
        text = _Edit(model, text).put(path, value)
    now = _read(model, text)
    if now is None or any(_changes(model, now, data, whole=whole)):
        return render(kind, data if whole else _laid_over(written, data))
    return text


def _read(model: type[Section], text: str) -> dict[str, Any] | None:
    """Return the written values, sections expanded; None if the text is not a mapping."""
    try:
        data = parse_yaml(text, file="").data
    except ConfigError:
        return None
    return _expanded(model, data)


def _expanded(model: type[Section], data: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in data.items():
        section = section_at(model, (str(key),))
        below = value if section is None else expand(section, value)
        known = section is not None and isinstance(below, dict)
        result[str(key)] = _expanded(section, below) if section and known else value
    return result


def _laid_over(base: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base) if isinstance(base, Mapping) else {}
    for key, value in data.items():
        over = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = _laid_over(result[key], value) if over else value
    return result


def _changes(
    model: type[Section],
    written: Mapping[str, Any],
    data: Mapping[str, Any],
    *,
    whole: bool,
    path: Path = (),
) -> Iterator[tuple[Path, Any]]:
    """Path and wanted value of each leaf that is not as wanted; ABSENT: leave it out."""
    for key, value in data.items():
        had = written.get(str(key), ABSENT)
        yield from _change(model, had, value, whole=whole, path=(*path, str(key)))
    section = section_at(model, path)
    if section is None:  # the keys of a free mapping are given all together
        yield from (((*path, key), ABSENT) for key in written if key not in data)
    elif issubclass(section, Choice):
        foreign = (k for k in written if k not in section.model_fields and k not in data)
        yield from (((*path, key), ABSENT) for key in foreign if section.variants.owners(key))
    if section is not None and whole:
        for key in section.model_fields:
            if key in written and key not in data:
                yield from _unset(model, written[key], (*path, key))


def _change(
    model: type[Section], had: Any, value: Any, *, whole: bool, path: Path
) -> Iterator[tuple[Path, Any]]:
    section = section_at(model, path)
    if section is not None:
        value = expand(section, value)
    base = {} if had is ABSENT and section is not None else had
    both = isinstance(base, Mapping) and isinstance(value, Mapping)
    if both and (section is not None or (base and value)):
        yield from _changes(model, base, value, whole=whole, path=path)
    else:
        yield from _leaf(model, path, had, value)


def _unset(model: type[Section], had: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the changes that set a field to its default."""
    if section_at(model, path) is not None and isinstance(had, Mapping):
        yield from _changes(model, had, {}, whole=True, path=path)
        return
    field = field_at(model, path)
    if field is not None and not same(had, default_of(field)):
        yield path, ABSENT


def _leaf(model: type[Section], path: Path, had: Any, value: Any) -> Iterator[tuple[Path, Any]]:
    field = field_at(model, path)
    default = default_of(field) if field is not None else ABSENT
    if path == ("provider",):
        default = ABSENT  # It says which fields there are, so it is always written.
    if value is None and default is not ABSENT:
        value = default
    if had is ABSENT and same(value, default):
        return
    if had is ABSENT or not same(had, value):
        yield path, value


class _Edit:
    """One change of one text."""

    def __init__(self, model: type[Section], text: str) -> None:
        self._model = model
        self._text = text
        self._places = Places(text)

    def put(self, path: Path, value: Any) -> str:
        """Return the text with the value at the path; ABSENT removes the field."""
        place = self._places.get(path)
        if value is ABSENT:
            return self._text if place is None else self._without(place)
        if place is not None:
            return self._replaced(place, value)
        parent = self._places.get(path[:-1]) if len(path) > 1 else None
        if len(path) > 1 and parent is None:
            return self.put(path[:-1], {path[-1]: value})
        if parent is not None and not parent.is_block:
            return self._into(parent, path, value)
        return self._beside(parent, path, value)

    def _replaced(self, place: Place, value: Any) -> str:
        written = inline(value, flow=place.in_flow)
        start, end = place.value_start, place.value_end
        if place.is_block or place.is_empty:
            start = self._text.find(":", place.key_end) + 1
            end, written = max(start, end), f" {written}"
        return self._text[:start] + written + self._comment_kept(end, len(written) - (end - start))

    def _comment_kept(self, end: int, longer: int) -> str:
        """Return the text from `end` on; a comment on the line stays in its column if possible."""
        rest = self._text[end:]
        bare = rest.lstrip(" ")
        gap = len(rest) - len(bare)
        return " " * max(2, gap - longer) + bare if gap >= 2 and bare.startswith("#") else rest

    def _without(self, place: Place) -> str:
        """Return the text without the field's lines; inside brackets with the default instead."""
        alone = len(self._places.below(place.path[:-1])) == 1
        if place.in_flow or (alone and len(place.path) > 1):
            field = field_at(self._model, place.path)
            if field is not None and default_of(field) is not ABSENT:
                return self._replaced(place, default_of(field))
            parent = self._places.get(place.path[:-1])
            kept = {
                p.path[-1]: _leaf_value(p, self._text)
                for p in self._places.below(place.path[:-1])
                if p is not place
            }
            return self._text if parent is None else self._replaced(parent, kept)
        start = self._text.rfind("\n", 0, place.key_start) + 1
        end = self._text.find("\n", max(place.value_end, place.key_end))
        return self._text[:start] + ("" if end < 0 else self._text[end + 1 :])

    def _into(self, parent: Place, path: Path, value: Any) -> str:
        """Into a section that is empty, a plain value, or in brackets."""
        key = inline(path[-1], flow=True)
        start, end = parent.value_start, parent.value_end
        if self._text[start : start + 1] == "{":
            comma = ", " if self._places.below(parent.path) else ""
            pair = f"{comma}{key}: {inline(value, flow=True)}"
            return self._text[: end - 1].rstrip() + pair + self._text[end - 1 :]
        given: dict[str, Any] = {path[-1]: value}
        section = section_at(self._model, parent.path)
        text = self._text
        if not parent.is_empty:
            short = section.shorthand if section is not None else None
            if short is None:
                return text
            if short == path[-1]:
                return self._replaced(parent, value)
            given = {short: _Raw(text[start:end]), **given}
            text = text[:start].rstrip(" ") + text[end:]
        line_end = text.find("\n", parent.key_end)
        line_end = len(text) if line_end < 0 else line_end
        lines = _block(given, self._indent(parent) + "  ")
        return text[:line_end] + "\n" + lines.rstrip("\n") + text[line_end:]

    def _beside(self, parent: Place | None, path: Path, value: Any) -> str:
        """Return the text with a new line, after the field that precedes it in the model."""
        siblings = self._places.below(path[:-1])
        section = section_at(self._model, path[:-1])
        order = list(section.model_fields) if section is not None else []
        rank = order.index(path[-1]) if path[-1] in order else len(order)
        before = [p for p in siblings if p.path[-1] in order[:rank] or rank == len(order)]
        indent = self._indent(siblings[0]) if siblings else ""
        lines = _block({path[-1]: value}, indent)
        at = self._line_after(before[-1]) if before else self._line_of(siblings)
        spaced = isinstance(value, Mapping) and bool(value) and parent is None and bool(before)
        head = "" if at == 0 or self._text[at - 1] == "\n" else "\n"
        return self._text[:at] + head + ("\n" if spaced else "") + lines + self._text[at:]

    def _line_after(self, place: Place) -> int:
        end = self._text.find("\n", max(place.value_end, place.key_end))
        return len(self._text) if end < 0 else end + 1

    def _line_of(self, siblings: list[Place]) -> int:
        if not siblings:
            return len(self._text)
        return self._text.rfind("\n", 0, siblings[0].key_start) + 1

    def _indent(self, place: Place) -> str:
        start = self._text.rfind("\n", 0, place.key_start) + 1
        return " " * (place.key_start - start)


class _Raw(str):
    """A value as it is written already."""


def _block(data: Mapping[str, Any], indent: str) -> str:
    first = next(iter(data.values()), None)
    if isinstance(first, _Raw):
        key, *_ = data
        rest = {name: value for name, value in data.items() if name != key}
        return f"{indent}{key}: {first}\n" + block(rest, indent=indent)
    return block(data, indent=indent)


def _leaf_value(place: Place, text: str) -> Any:
    """Return the value of one place, parsed alone."""
    source = text[place.value_start : place.value_end]
    try:
        return parse_yaml(f"k: {source}", file="").data["k"]
    except ConfigError:
        return None
