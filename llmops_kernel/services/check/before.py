"""The check of a run that is going to wait: what `llmops check` finds is said before, not after.

A run on a free cluster reads its rows within a second and fails with the same sentence; one that
waits for others would say so an hour later. So rows are tried here only while others are active,
and once for the same rows, tokenizer and hooks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.problems import config_error
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services.check.closely import Run, check_closely
from llmops_kernel.services.data.process import run_job
from llmops_kernel.store import paths
from llmops_kernel.store.files import least_used, private_folder
from llmops_kernel.version import VERSION

TIMEOUT_S = 20.0
_REMEMBERED_BYTES = 2**16
"""Size of all marks, each as long as its key: about a thousand."""


def check_before(
    config: Any,
    workspace: Path,
    *,
    progress: Progress | None = None,
    run: Run = run_job,
) -> None:
    """Raise ConfigError for what would make a training fail; other kinds are not tried.

    Where the config has hooks a finding is told to `progress`, not raised: hooks may need what only
    workers have. So is that rows could not be tried in time.
    """
    if not isinstance(config, TrainingConfig):
        return
    mark = paths.cache() / "checked" / _key(config, workspace)
    if mark.exists():
        return
    report = progress or (lambda _: None)
    result = check_closely(config, workspace, timeout_s=TIMEOUT_S, progress=report, run=run)
    if result.problems and not config.hooks.file:
        raise config_error(result.problems)
    for warning in (*result.problems, *(w for w in result.warnings if w.path.startswith("data."))):
        report(f"Warning: {warning}")
    if not result.problems:
        _remember(mark)


def _remember(mark: Path) -> None:
    with suppress(OSError):
        private_folder(mark.parent)
        mark.write_text(mark.name)
        for old in least_used(mark.parent.iterdir(), limit_bytes=_REMEMBERED_BYTES):
            old.unlink(missing_ok=True)


def _key(config: TrainingConfig, workspace: Path) -> str:
    """Return a hash of all that the check of rows reads."""
    sections = config.model_dump(mode="json", include={"data", "model", "hooks", "method"})
    facts = [VERSION, str(workspace.resolve()), sections, list(_stamps(config, workspace))]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _stamps(config: TrainingConfig, workspace: Path) -> Iterator[tuple[str, int, int]]:
    """Yield size and time of each local file and folder that the config names."""
    sources = [source.path for source in config.data.sources]
    for name in (*sources, config.data.eval, config.hooks.file, config.model.id):
        if not name or "://" in name:
            continue
        with suppress(OSError, ValueError):
            for path in sorted(workspace.glob(name)) if "*" in name else [workspace / name]:
                info = path.stat()
                yield str(path), info.st_size, info.st_mtime_ns
