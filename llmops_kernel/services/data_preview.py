"""Shows the data of a training config before a run: figures of all of it, and rows as tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.reading.shape import Overrides
from llmops_kernel.errors import ConfigError, DataError
from llmops_kernel.kinds import reading
from llmops_kernel.kinds.reading import ConfigLike, combined, load
from llmops_kernel.kinds.registry import is_registered, kind_named
from llmops_kernel.services.backend import current
from llmops_kernel.services.data_process import Stop, run_job
from llmops_kernel.services.scoring.model import with_start
from llmops_kernel.store.preview_job import DataPreview, PreviewJob, ShownRow, Side

__all__ = ["MOST_ROWS", "TIMEOUT_S", "DataPreview", "PreviewJob", "ShownRow", "Side"]
MOST_ROWS = 2000
TIMEOUT_S = 300.0


def job_of(
    config: ConfigLike,
    *,
    overrides: Overrides = (),
    settings: Mapping[str, Any] | None = None,
    workspace: Path | str | None = None,
    rows: int = MOST_ROWS,
    side: Side = "train",
) -> PreviewJob:
    """Return what is to be looked at. Raises ConfigError with all mistakes of the config.

    Relative paths start in `workspace`: by default the folder of the file, else the current one.
    """
    path = Path(config) if isinstance(config, str | Path) else None
    root = Path(workspace) if workspace else path.resolve().parent if path else Path.cwd()
    loaded = load(config, combined(overrides, settings or {}), workspace=root)
    return job_of_config(loaded, name=str(path or "this config"), workspace=root).model_copy(
        update={"max_rows": rows, "side": side}
    )


def job_of_text(text: str, kind: str, name: str, workspace: Path) -> PreviewJob:
    """Return the job for a text that need not be saved; `name` is what messages call it.

    Raises ConfigError with all mistakes.
    """
    if not is_registered(kind):
        raise _no_rows(name)
    config = reading.from_text(kind_named(kind), text, name=name, workspace=workspace)
    return job_of_config(config, name=name, workspace=workspace)


def job_of_config(config: Any, *, name: str, workspace: Path) -> PreviewJob:
    """Return the job for a config that is read already. Raises ConfigError for other kinds."""
    if not isinstance(config, TrainingConfig):
        raise _no_rows(name)
    values = with_start(config, current().store).model_dump(mode="json")
    return PreviewJob(config=values, workspace=str(workspace.resolve()))


def preview(
    job: PreviewJob,
    *,
    timeout_s: float = TIMEOUT_S,
    progress: Callable[[str], None] = lambda _: None,
    stop: Stop | None = None,
) -> DataPreview:
    """Look at the data in a process of its own. Raises DataError, HookError, ModelError.

    `start` gives that process: a new one, or one that has its imports behind it.
    """
    _check_side(job)
    line = run_job(job, timeout_s=timeout_s, progress=progress, stop=stop)
    if line.preview is None:
        raise DataError("The preview has no result.", remedy="llmops doctor")
    return line.preview


def preview_row(
    job: PreviewJob,
    number: int,
    *,
    timeout_s: float = TIMEOUT_S,
    max_tokens: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
    stop: Stop | None = None,
) -> ShownRow:
    """Return one row of the job's side, whole or up to `max_tokens`.

    Raises DataError, HookError, ModelError.
    """
    _check_side(job)
    row_job = job.model_copy(update={"row": number, "max_tokens": max_tokens})
    line = run_job(row_job, timeout_s=timeout_s, progress=progress, stop=stop)
    if line.row is None:
        raise DataError("The preview has no result.", remedy="llmops doctor")
    return line.row


def _check_side(job: PreviewJob) -> None:
    if job.side == "eval" and job.config["data"].get("eval") is None:
        raise ConfigError(
            "The config names no evaluation rows.",
            remedy="set data.eval, or look at the training rows",
        )


def _no_rows(name: str) -> ConfigError:
    return ConfigError(
        f"{name} is not a training config: it names no training rows",
        remedy="give a config such as lora.train.yaml",
    )
