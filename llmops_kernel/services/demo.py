"""The demo's workspace: a config, its hooks and its data, in a clone and in the wheel."""

from __future__ import annotations

import shutil
from pathlib import Path

from llmops_kernel.errors import ConfigError, StoreError
from llmops_kernel.store.paths import home

PACKAGE = Path(__file__).parents[1]
CONFIG = "lora.train.yaml"
FILES = (CONFIG, "menu_hooks.py", "data/menu-train.jsonl", "data/menu-eval.jsonl")
"""Files that the wheel has in `llmops_kernel/demo_workspace`; see pyproject.toml."""


def demo_config(workspace: Path | None = None, *, package: Path = PACKAGE) -> Path:
    """Return the config to train: of `workspace`, of a clone, or of a copy in the home folder.

    Raises ConfigError without one.
    """
    if workspace is not None:
        return _existing(workspace / CONFIG)
    clone = package.parent / "notebooks"
    if (clone / CONFIG).is_file():
        return clone / CONFIG
    _existing(package / "demo_workspace" / CONFIG)
    return _copied(package / "demo_workspace", home() / "demo")


def _existing(config: Path) -> Path:
    if not config.is_file():
        raise ConfigError(
            f"{config} does not exist.",
            remedy="name a folder that has it with --workspace, or reinstall llmops-kernel",
        )
    return config


def _copied(source: Path, target: Path) -> Path:
    """Copy what is missing: files that the user has changed stay."""
    try:
        for name in FILES:
            if not (target / name).exists():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, target / name)
    except OSError as error:
        raise StoreError(
            f"The demo cannot be copied to {target}: {error.strerror}",
            remedy="set LLMOPS_HOME to a folder that you can write to",
        ) from error
    return target / CONFIG
