"""Writes commented config files from the models' own descriptions, bounds and defaults."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from llmops_kernel.config.check import validated
from llmops_kernel.config.cluster import TEMPLATES, ClusterTemplate
from llmops_kernel.config.describe import choices, compact, item_section, pattern_of, section_of
from llmops_kernel.config.kuberay import KubeRayTemplate
from llmops_kernel.config.origins import Origins
from llmops_kernel.config.overrides import apply_overrides
from llmops_kernel.config.problems import config_error
from llmops_kernel.config.quantity import PATTERN as QUANTITY_PATTERN
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
_KUBERAY = {
    "provider": "kuberay",
    "image": "rayproject/ray:2.60.0-py311-cpu",
    "worker_groups": [{"name": "workers", "cpus": "4", "memory": "16Gi"}],
}
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
    """A cluster template with every field explained; `provider` says of which kind."""
    model = TEMPLATES.get(answers.get("provider", "local"), ClusterTemplate)
    base = _KUBERAY if model is KubeRayTemplate else {}
    return _head(_CLUSTER_HEAD) + "\n".join(_render(_answered(model, base, answers))) + "\n"


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
    fields = type(config).model_fields
    for name in sorted(fields, key=lambda name: name != "name"):
        field, value = fields[name], getattr(config, name)
        if item_section(field) is not None and value:
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
