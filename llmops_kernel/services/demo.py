"""The demo's workspace: a config, its hooks and its data, in a clone and in the wheel."""

from __future__ import annotations

import shutil
from pathlib import Path

from llmops_kernel import score_env
from llmops_kernel.errors import ConfigError, StoreError
from llmops_kernel.kinds.reading import load
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services.backend import Backend, current
from llmops_kernel.services.clusters import ClusterAccess, find, read_template, up
from llmops_kernel.services.models import prepare_model
from llmops_kernel.services.submission import from_config, submit
from llmops_kernel.store.paths import home
from llmops_kernel.store.record.record import RunRecord
from llmops_kernel.store.store import RunStore

SCORED_ROWS = 96
"""Held-out rows that each model answers: the whole demo stays below 7 minutes on two cores."""
PACKAGE = Path(__file__).parents[1]
CLUSTER = "local"
CONFIG = "lora.train.yaml"
SCORE_CONFIG = "menu.score.yaml"
FILES = (CONFIG, SCORE_CONFIG, "menu_hooks.py", "data/menu-train.jsonl", "data/menu-eval.jsonl")
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


def menu_data(*, package: Path = PACKAGE) -> Path:
    """Return the folder of the shipped menu data. Raises ConfigError where it is missing."""
    clone = package.parent / "notebooks" / "data"
    folder = clone if clone.is_dir() else package / "demo_workspace" / "data"
    _existing(folder / "menu-train.jsonl")
    return folder


def submit_demo(
    config: Path, *, cluster: ClusterAccess, store: RunStore, max_steps: int | None = None
) -> RunRecord:
    """Submit the demo's training; `max_steps` None is the config's number of steps."""
    overrides = [] if max_steps is None else [f"training.max_steps={max_steps}"]
    wanted = from_config(config, overrides=overrides, workspace=config.parent)
    return submit(cluster, wanted, store=store)


def score_config(config: Path) -> Path | None:
    """Return the score config beside the training config; None where a workspace has none."""
    found = config.parent / SCORE_CONFIG
    return found if found.is_file() else None


def submit_scoring(
    config: Path, *, cluster: ClusterAccess, store: RunStore, model: str, rows: int = SCORED_ROWS
) -> RunRecord:
    """Submit a scoring of the first held-out rows; `model` is a change such as `model.run=ID`.

    vLLM answers where its environment is made already: to make it would take longer than the demo.
    """
    engine = "vllm" if score_env.ready() else "transformers"
    overrides = [model, f"engine.type={engine}", f"input.limit={rows}", "evaluation.samples=2"]
    wanted = from_config(config, overrides=overrides, workspace=config.parent)
    return submit(cluster, wanted, store=store)


def start_demo(
    workspace: Path | None = None,
    *,
    max_steps: int | None = None,
    progress: Progress | None = None,
    backend: Backend | None = None,
) -> RunRecord:
    """Start the demo's cluster, prepare its model and submit its training.

    Each part is skipped if it is done already.
    """
    backend = backend or current()
    config = demo_config(workspace)
    template, path = read_template(CLUSTER)
    up(template, path=path, progress=progress, backend=backend)
    prepare_model(model_of(config), progress=progress)
    cluster = find(CLUSTER, backend=backend)
    return submit_demo(config, cluster=cluster, store=backend.store, max_steps=max_steps)


def model_of(config: Path) -> str:
    """Return the id of the model that a training config names. Raises ConfigError."""
    return str(load(config, ()).model.id)


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
