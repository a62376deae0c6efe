"""Write commented config files from the descriptions, bounds and defaults of the models."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from llmops_kernel.config.field_docs import about
from llmops_kernel.config.models.choice import fields_of
from llmops_kernel.config.models.cluster import model_of
from llmops_kernel.config.models.describe import (
    choices,
    compact,
    item_section,
    pattern_of,
    section_of,
)
from llmops_kernel.config.models.quantity import PATTERN as QUANTITY_PATTERN
from llmops_kernel.config.models.section import Section
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.problems import config_error
from llmops_kernel.config.reading.check import validated
from llmops_kernel.config.reading.document import Origins, dump, parse_value
from llmops_kernel.config.reading.overrides import apply_overrides

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
    config = _answered(TrainingConfig, _BASE, answers)
    return new_file(_TRAINING_HEAD, config)


def cluster_template(**answers: Any) -> str:
    """Return a cluster template with every field explained, for the given `provider`."""
    model = model_of({"provider": "local", **answers})
    base = {"provider": "local", **model.example}
    return new_file(_CLUSTER_HEAD, _answered(model, base, answers))


def new_file(head: str, config: Section) -> str:
    """Return the text of a new file: `head` as a comment, then each field explained."""
    return _head(head) + commented(config)


def commented(config: Section) -> str:
    """Return a config as YAML, with each field explained above it."""
    return "\n".join(_render(config)) + "\n"


def _answered(model: type[Section], base: Mapping[str, Any], answers: Mapping[str, Any]) -> Section:
    origins = Origins()
    data, problems = apply_overrides(model, base, answers, origins=origins)
    if problems:
        raise config_error(problems)
    return validated(model, data, origins=origins)


def _head(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines()) + "\n"


def _render(config: Section, indent: str = "") -> Iterator[str]:
    after_section = False
    fields = fields_of(type(config))
    for name in sorted(fields, key=lambda name: name != "name"):
        field, value = fields[name], getattr(config, name)
        if item_section(field) is not None and value and not isinstance(value, str):
            yield from ("", *_comment(field, indent), f"{indent}{name}:")
            yield from _items(value, indent + "  ")
            after_section = True
        elif section_of(field.annotation) is None:
            if after_section:
                yield ""
            after_section = False
            yield from _comment(field, indent)
            bare = isinstance(value, str) and pattern_of(field) == QUANTITY_PATTERN
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


def _comment(field: FieldInfo, indent: str) -> Iterator[str]:
    description = about(field)
    allowed = choices(field)
    named = all(f"`{choice}`" in description for choice in allowed)
    text = description if named else f"{description} One of: {', '.join(allowed)}."
    prefix = f"{indent}# "
    yield from textwrap.wrap(
        text, _WIDTH, initial_indent=prefix, subsequent_indent=prefix, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def written(value: Any) -> str:
    """Write a value on one line, in its short form where that is read back the same."""
    short = compact(value)
    wanted = list(value) if isinstance(value, tuple) else value
    try:
        if "\n" not in short and parse_value(short) == wanted and " #" not in short:
            return short
    except ValueError:
        pass
    return dump(wanted).strip().removesuffix("\n...")
