"""Load configs: a file, a text or plain data, with overrides; all problems at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.section import Section
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.problems import ABSENT, Problem
from llmops_kernel.config.reading.check import resolved
from llmops_kernel.config.reading.document import Document, document_of, dump, parse_yaml, read_yaml
from llmops_kernel.config.reading.files import check_files
from llmops_kernel.config.reading.shape import Overrides

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
REMEDY = "`llmops init` writes a config with every field explained"


def load_training_config(
    path: Path | str, overrides: Overrides = (), *, workspace: Path | None = None
) -> TrainingConfig:
    """Read, override and check a file. Raises ConfigError with all problems.

    With a `workspace` the problems of a wrong config include those of the files it names.
    """
    document = read_yaml(Path(path).expanduser(), remedy=REMEDY, siblings=PATTERN)
    return _training_config(document, overrides, workspace)


def training_config_from_text(
    text: str,
    overrides: Overrides = (),
    *,
    name: str = "the text",
    workspace: Path | None = None,
) -> TrainingConfig:
    """Like `load_training_config` for a YAML text; `name` is what the problems call it."""
    return _training_config(parse_yaml(text, file=name, remedy=REMEDY), overrides, workspace)


def training_config_from_dict(
    data: Mapping[str, Any], overrides: Overrides = (), *, workspace: Path | None = None
) -> TrainingConfig:
    """Like `load_training_config` for plain data, such as a notebook's dict."""
    return _training_config(document_of(data), overrides, workspace)


def _training_config(
    document: Document, overrides: Overrides, workspace: Path | None
) -> TrainingConfig:
    return resolved(
        TrainingConfig, document, overrides, workspace=workspace, files=check_files, remedy=REMEDY
    )


def dump_yaml(config: Section) -> str:
    """Every field, defaults too, so that the text stays true when a default changes."""
    return dump(config.model_dump(mode="json"))


def flatten(config: Section | Mapping[str, Any]) -> dict[str, Any]:
    """Dotted path -> plain value, of a config or of its dictionary; empty mappings vanish.

    The sections of a list have their numbers in the path: `data.train[0].path`.
    """
    data = config.model_dump(mode="json") if isinstance(config, Section) else config
    return dict(_flat(data, ""))


def _flat(data: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple) and any(isinstance(v, Mapping) for v in value):
            yield from _flat({f"{key}[{number}]": v for number, v in enumerate(value)}, prefix)
        else:
            yield f"{prefix}{key}", value
