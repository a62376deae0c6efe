"""Training configs: check one with its files, and the JSON schema for editors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.problems import config_error
from llmops_kernel.config.reading.load import check_files
from llmops_kernel.config.reading.overrides import Overrides
from llmops_kernel.services.submission import load


def check(
    config: TrainingConfig | Mapping[str, Any] | str | Path,
    *,
    overrides: Overrides = (),
    workspace: Path | str | None = None,
) -> TrainingConfig:
    """Return the resolved config. Raises ConfigError with all mistakes of the config or its files.

    Relative paths start in `workspace`: by default the folder of the file, else the current one.
    """
    loaded = load(config, overrides)
    path = Path(config) if isinstance(config, str | Path) else None
    root = Path(workspace) if workspace else path.resolve().parent if path else Path.cwd()
    if problems := check_files(loaded, root):
        raise config_error(problems)
    return loaded


def schema() -> dict[str, Any]:
    """Return the JSON schema of training configs."""
    from llmops_kernel.config.assist.schema import training_schema

    return training_schema()
