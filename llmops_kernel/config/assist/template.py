"""Write configs as YAML: new files with every field explained, and the values of a form."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from llmops_kernel.config.models.cluster import model_of
from llmops_kernel.config.models.fields import FieldSpec, SectionSpec, compact, spec_of
from llmops_kernel.config.models.quantity import PATTERN as QUANTITY_PATTERN
from llmops_kernel.config.models.section import Section
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.problems import ABSENT
from llmops_kernel.config.reading.check import resolved
from llmops_kernel.config.reading.document import document_of, dump, parse_value
from llmops_kernel.config.reading.shape import expand

_WIDTH = 96
_BASE = {"model": "SmolLM2-135M-Instruct", "data": "data/train.jsonl"}
_TRAINING_HEAD = """\
Training config: this file fully describes a run. Lines with a default value may be deleted.
Check it with `llmops check FILE` and run it with `llmops submit FILE`. To change single values
of one submission: `llmops submit FILE learning_rate=1e-4 method=full`.
"""
_CLUSTER_HEAD = """\
Cluster template: what `llmops up` starts. Lines with a default value may be deleted.
"""


def training_template(**answers: Any) -> str:
    """Return a config with every field explained; `answers` are given as overrides are.

    Raises ConfigError when an answer does not fit.
    """
    return new_file(_TRAINING_HEAD, resolved(TrainingConfig, document_of(_BASE), answers))


def cluster_template(**answers: Any) -> str:
    """Return a cluster template with every field explained, for the given `provider`."""
    model = model_of({"provider": "local", **answers})
    base = {"provider": "local", **model.example}
    return new_file(_CLUSTER_HEAD, resolved(model, document_of(base), answers))


def new_file(head: str, config: Section) -> str:
    """Return the text of a new file: `head` as a comment, then each field explained."""
    return _head(head) + commented(config)


def commented(config: Section) -> str:
    """Return a config as YAML, with each field explained above it."""
    return "\n".join(_render(config)) + "\n"


def _head(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines()) + "\n"


def _render(config: Section, indent: str = "") -> Iterator[str]:
    after_section = False
    fields = spec_of(type(config)).fields
    for name in sorted(fields, key=lambda name: name != "name"):
        field, value = fields[name], getattr(config, name)
        if field.item is not None and value and not isinstance(value, str):
            yield from ("", *_comment(field, indent), f"{indent}{name}:")
            yield from _items(value, indent + "  ")
            after_section = True
        elif field.section is None:
            if after_section:
                yield ""
            after_section = False
            yield from _comment(field, indent)
            bare = isinstance(value, str) and field.pattern == QUANTITY_PATTERN
            yield f"{indent}{name}: {value if bare else written(value)}"
        else:
            yield ""
            yield f"{indent}{name}:"
            yield from _render(value, indent + "  ")
            after_section = True


def _items(sections: Iterable[Section], indent: str) -> Iterator[str]:
    for section in sections:
        lines = list(_render(section, indent + "  "))
        first = next(i for i, line in enumerate(lines) if line.strip()[:1] not in ("#", ""))
        yield from lines[:first]
        yield f"{indent}- {lines[first].strip()}"
        yield from lines[first + 1 :]


def _comment(field: FieldSpec, indent: str) -> Iterator[str]:
    named = all(f"`{choice}`" in field.about for choice in field.choices)
    text = field.about if named else f"{field.about} One of: {', '.join(field.choices)}."
    prefix = f"{indent}# "
    yield from textwrap.wrap(
        text, _WIDTH, initial_indent=prefix, subsequent_indent=prefix, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def written(value: Any) -> str:
    """Write a value on one line, in its short form where that is read back the same."""
    short = compact(value)
    plain = list(value) if isinstance(value, tuple) else value
    try:
        if "\n" not in short and parse_value(short) == plain and " #" not in short:
            return short
    except ValueError:
        pass
    return dump(plain).strip().removesuffix("\n...")


def block(data: Mapping[str, Any], *, indent: str = "", spaced: bool = False) -> str:
    """Block style; with `spaced` an empty line before and behind each section."""
    return "".join(f"{line}\n" for line in _lines(data, indent, spaced=spaced))


def _lines(data: Mapping[str, Any], indent: str, *, spaced: bool) -> Iterator[str]:
    before: Any = None
    for index, (key, value) in enumerate(data.items()):
        is_section = isinstance(value, Mapping) and bool(value)
        if spaced and index and (is_section or before):
            yield ""
        before = is_section
        if is_section:
            yield f"{indent}{inline(str(key))}:"
            yield from _lines(value, indent + "  ", spaced=False)
        else:
            yield f"{indent}{inline(str(key))}: {inline(value)}"


def inline(value: Any, *, flow: bool = False) -> str:
    """Return the value on one line, read back as the same value; `flow`: inside brackets."""
    if isinstance(value, Mapping):
        pairs = (f"{inline(str(k), flow=True)}: {inline(v, flow=True)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(inline(item, flow=True) for item in value) + "]"
    short = compact(value)
    for written in (short, dump(value).strip().removesuffix("\n...")):
        if _reads_back(written, value, flow=flow):
            return written
    return json.dumps(value, ensure_ascii=False)


def _reads_back(written: str, value: Any, *, flow: bool) -> bool:
    if "\n" in written or " #" in written or written.startswith("#"):
        return False
    try:
        read = parse_value(f"[{written}]")[0] if flow else parse_value(f"k: {written}")["k"]
    except (yaml.YAMLError, ValueError, KeyError, IndexError, TypeError):
        return False
    return bool(read == value and type(read) is type(value))


def pruned(section: SectionSpec, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data without defaults, in the model's order; unknown keys come last."""
    left: dict[str, Any] = {}
    for name, field in section.fields.items():
        if name in data:
            value = _pruned_field(field, data[name])
            if value is not ABSENT:
                left[name] = value
    return left | {key: value for key, value in data.items() if key not in section.fields}


def _pruned_field(field: FieldSpec, value: Any) -> Any:
    section = field.section
    if section is None:
        default = default_of(field)
        at_default = same(value, default) or (value is None and default is not ABSENT)
        return ABSENT if at_default and not field.is_required else value
    below = expand(section, value)
    if not isinstance(below, dict):
        return value
    left = pruned(section.chosen(below), below)
    if section.shorthand is not None and list(left) == [section.shorthand]:
        return left[section.shorthand]
    return left if left or field.is_required else ABSENT


def default_of(field: FieldSpec) -> Any:
    """Return the default as plain data; ABSENT for a required field."""
    if field.is_required:
        return ABSENT
    default = field.default
    if isinstance(default, Section):
        return default.model_dump(mode="json")
    return list(default) if isinstance(default, tuple) else default


def same(value: Any, other: Any) -> bool:
    """Equal as a config reads them: `1` is `1.0`, but `1` is not `true`."""
    if isinstance(value, bool) != isinstance(other, bool):
        return False
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(map(same, value, other))
    return bool(value == other)
