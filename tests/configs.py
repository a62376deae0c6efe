"""Training configs of tests: read from a file, a text or values, and written with every field."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.section import Section
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.reading.document import dump
from llmops_kernel.config.reading.shape import Overrides
from llmops_kernel.kinds import reading
from llmops_kernel.kinds.train import TRAIN


def load_training_config(
    path: Path | str, overrides: Overrides = (), *, workspace: Path | None = None
) -> TrainingConfig:
    """Read, override and check a file, whatever its name. Raises ConfigError with all problems."""
    config: TrainingConfig = reading.from_path(TRAIN, Path(path), overrides, workspace=workspace)
    return config


def training_config_from_text(
    text: str,
    overrides: Overrides = (),
    *,
    name: str = "the text",
    workspace: Path | None = None,
) -> TrainingConfig:
    """Like `load_training_config` for a YAML text; `name` is what the problems call it."""
    config: TrainingConfig = reading.from_text(
        TRAIN, text, overrides, name=name, workspace=workspace
    )
    return config


def training_config_from_dict(
    data: Mapping[str, Any], overrides: Overrides = (), *, workspace: Path | None = None
) -> TrainingConfig:
    """Like `load_training_config` for plain data, such as a notebook's dict."""
    config: TrainingConfig = reading.from_values(TRAIN, data, overrides, workspace=workspace)
    return config


def dump_yaml(config: Section) -> str:
    """Return every field, defaults too."""
    return dump(config.model_dump(mode="json"))
