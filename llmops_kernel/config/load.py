"""Loads training configs: a file or plain data, with overrides, all mistakes told at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from llmops_kernel.config.check import validated
from llmops_kernel.config.files import check_files
from llmops_kernel.config.origins import Origins
from llmops_kernel.config.overrides import Overrides, apply_overrides
from llmops_kernel.config.problems import ABSENT, Problem
from llmops_kernel.config.sections import Section
from llmops_kernel.config.train import TrainingConfig
from llmops_kernel.config.yaml_dialect import dump
from llmops_kernel.config.yaml_source import Source, parse_yaml, read_yaml

__all__ = [
    "ABSENT",
    "Problem",
    "check_files",
    "dump_yaml",
    "flatten",
    "load_training_config",
    "training_config_from_dict",
    "training_config_from_text",
]

PATTERN = "*.train.yaml"
_REMEDY = "`llmops init` writes a config with every field explained"


def load_training_config(path: Path | str, overrides: Overrides = ()) -> TrainingConfig:
    """Read, override and check. Raises ConfigError; its `problems` are all that is wrong."""
    source = read_yaml(Path(path).expanduser(), remedy=_REMEDY, siblings=PATTERN)
    return _training_config(source, overrides)


def training_config_from_text(
    text: str, overrides: Overrides = (), *, name: str = "the text"
) -> TrainingConfig:
    """Like `load_training_config` for YAML that lies in no file; `name` is what errors call it."""
    return _training_config(parse_yaml(text, file=name, remedy=_REMEDY), overrides)


def _training_config(source: Source, overrides: Overrides) -> TrainingConfig:
    data, wrong = apply_overrides(TrainingConfig, source.data, overrides, origins=source.origins)
    return validated(
        TrainingConfig,
        data,
        origins=source.origins,
        problems=[*source.problems, *wrong],
        remedy=_REMEDY,
    )


def training_config_from_dict(data: Mapping[str, Any], overrides: Overrides = ()) -> TrainingConfig:
    """Like `load_training_config` for data at hand: a notebook's dict, a run's record."""
    origins = Origins()
    merged, wrong = apply_overrides(TrainingConfig, data, overrides, origins=origins)
    return validated(TrainingConfig, merged, origins=origins, problems=wrong, remedy=_REMEDY)


def dump_yaml(config: Section) -> str:
    """Every field, defaults too, so that the text stays true when a default changes."""
    return dump(config.model_dump(mode="json"))


def flatten(config: Section | Mapping[str, Any]) -> dict[str, Any]:
    """Dotted path -> plain value, of a config or of its dictionary; empty mappings vanish."""
    data = config.model_dump(mode="json") if isinstance(config, Section) else config
    return dict(_flat(data, ""))


def _flat(data: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
