"""Writes commented config files from the models' own descriptions, bounds and defaults."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from llmops_kernel.config.check import validated
from llmops_kernel.config.cluster import ClusterTemplate
from llmops_kernel.config.describe import choices, compact, section_of
from llmops_kernel.config.origins import Origins
from llmops_kernel.config.overrides import apply_overrides
from llmops_kernel.config.problems import config_error
from llmops_kernel.config.sections import Section
from llmops_kernel.config.train import TrainingConfig
from llmops_kernel.config.yaml_dialect import dump, parse_value

_WIDTH = 96
_BASE = {"model": "SmolLM2-135M-Instruct", "data": "data/train.jsonl"}
_TRAINING_HEAD = """\
Training config: this file alone describes the run. Lines at their default may be deleted.
Check it with `llmops check FILE`, run it with `llmops submit FILE`, and change single values
on the way: `llmops submit FILE learning_rate=1e-4 method=full`.
"""
_CLUSTER_HEAD = """\
Cluster template: what `llmops up` starts. Lines at their default may be deleted.
"""


def training_template(**answers: Any) -> str:
    """A config with every field explained; `answers` are given as overrides are.

    Raises ConfigError when an answer does not fit.
    """
    config = _answered(TrainingConfig, _BASE, answers)
    return _head(_TRAINING_HEAD) + "\n".join(_render(config)) + "\n"


def cluster_template(**answers: Any) -> str:
    """A cluster template with every field explained."""
    return _head(_CLUSTER_HEAD) + "\n".join(_render(_answered(ClusterTemplate, {}, answers))) + "\n"


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
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if section_of(field.annotation) is None:
            if after_section:
                yield ""
            after_section = False
            yield from _comment(field, indent)
            yield f"{indent}{name}: {written(value)}"
        else:
            yield ""
            yield f"{indent}{name}:"
            yield from _render(value, indent + "  ")
            after_section = True


def _comment(field: FieldInfo, indent: str) -> Iterator[str]:
    about = " ".join((field.description or "").split())
    allowed = choices(field)
    named = all(f"`{choice}`" in about for choice in allowed)
    text = about if named else f"{about} One of: {', '.join(allowed)}."
    prefix = f"{indent}# "
    yield from textwrap.wrap(
        text, _WIDTH, initial_indent=prefix, subsequent_indent=prefix, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def written(value: Any) -> str:
    """In one line, by hand's spelling where that reads back the same."""
    short = compact(value)
    wanted = list(value) if isinstance(value, tuple) else value
    try:
        if "\n" not in short and parse_value(short) == wanted and " #" not in short:
            return short
    except ValueError:
        pass
    return dump(wanted).strip().removesuffix("\n...")
