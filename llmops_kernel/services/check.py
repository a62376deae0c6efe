"""Checks what a valid config names by using it: rows, tokenizer, hooks, hub, trackers, output."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.problems import Problem, config_error
from llmops_kernel.config.reading.check import overlap
from llmops_kernel.errors import LLMOpsError, MissingDependencyError
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services.backend import current
from llmops_kernel.services.data_process import Stop, StoppedError, run_job
from llmops_kernel.services.scoring.model import with_start
from llmops_kernel.store import paths
from llmops_kernel.store.files import find, least_used, private_folder
from llmops_kernel.store.paths import home
from llmops_kernel.store.preview_job import DataCheck, Finding, PreviewJob, PreviewLine
from llmops_kernel.trackers.tracker import BACKENDS, is_installed
from llmops_kernel.version import VERSION
from llmops_kernel.views.format import byte_size
from llmops_kernel.views.preview_facts import all_findings

CHECK_S = 60.0
_ROWS = 1000
"""Rows of each source that are tokenised: a third of a second."""


class Run(Protocol):
    """Does a job in a process of its own, as `run_job`."""

    def __call__(
        self,
        job: PreviewJob,
        *,
        timeout_s: float,
        progress: Callable[[str], None],
        stop: Stop | None,
    ) -> PreviewLine: ...


@dataclass(frozen=True)
class CloseCheck:
    """Findings of a check; each list in the order of importance."""

    problems: list[Problem] = field(default_factory=list)
    """A run would fail."""
    warnings: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was checked, and what could not be."""


def check_closely(
    config: Any,
    workspace: Path,
    *,
    problems: Sequence[Problem] = (),
    progress: Callable[[str], None] = lambda _: None,
    timeout_s: float = CHECK_S,
    stop: Stop | None = None,
    run: Run = run_job,
) -> CloseCheck:
    """Return what is wrong with what a training config names; of other configs, with trackers.

    `problems` are its problems that were found already: what they are about is not used. Raises
    StoppedError.
    """
    findings = list(tracker_findings(getattr(config, "report_to", ())))
    if isinstance(config, TrainingConfig):
        rows = _of_rows(config, workspace, problems, progress, timeout_s, stop, run)
        findings = [*rows, *findings, *output_findings(config, workspace)]
    return CloseCheck(
        [_problem(finding) for finding in findings if finding.level == "problem"],
        [_problem(finding) for finding in findings if finding.level == "warning"],
        [finding.message for finding in findings if finding.level == "note"],
    )


def _of_rows(
    config: TrainingConfig,
    workspace: Path,
    problems: Sequence[Problem],
    progress: Callable[[str], None],
    timeout_s: float,
    stop: Stop | None,
    run: Run,
) -> list[Finding]:
    try:
        config = with_start(config, current().store)
    except LLMOpsError as error:
        return [
            Finding(path="model.run", level="problem", message=error.message, remedy=error.remedy)
        ]
    job = PreviewJob(
        config=config.model_dump(mode="json"),
        workspace=str(workspace.resolve()),
        max_rows=_ROWS,
        check=True,
        skip=_wrong_fields(config, problems),
    )
    try:
        line = run(job, timeout_s=timeout_s, progress=progress, stop=stop)
    except StoppedError:
        raise
    except MissingDependencyError as error:
        return [_not_read("note", error)]
    except LLMOpsError as error:
        return [_not_read("warning", error)]
    return all_findings(
        line.check or DataCheck(max_length=0, has_hook=False, sources=[], findings=[])
    )


def _wrong_fields(config: TrainingConfig, problems: Sequence[Problem]) -> list[str]:
    count = len(config.data.sources) if config.data.is_mixture else 0
    sources = [f"data.train.{number}.path" for number in range(count)] or ["data.train"]
    fields = (*sources, "data.eval", "data.format", "data.columns", "hooks.file", "model.id")
    return [name for name in fields if any(overlap(name, problem.path) for problem in problems)]


def _not_read(level: str, error: LLMOpsError) -> Finding:
    message = f"rows, tokenizer and hooks were not tried: {error.message.strip().rstrip('.')}"
    return Finding(
        path="data.train",
        level="note" if level == "note" else "warning",
        message=message,
        remedy=error.remedy,
    )


def _problem(finding: Finding) -> Problem:
    return Problem(path=finding.path, message=finding.message, suggestion=finding.remedy)


# --- Writability of the result, tried on this machine for folders ---


_LEAST_BYTES = 1 << 30
"""Free bytes below which there is a warning also where the size of the result is not known."""
_WEIGHTS = ("*.safetensors", "*.bin")


def output_findings(config: TrainingConfig, workspace: Path) -> Iterator[Finding]:
    """Yield what a test of the output's folder has found; nothing is left there."""
    url = config.output.url
    if url is not None and "://" in url and not url.startswith("file://"):
        yield Finding(
            path="output.url",
            level="note",
            message=f"{url} was not checked: the cluster's nodes need write access to it",
        )
        return
    needed_bytes = _needed_bytes(config, workspace)
    if url is None:
        yield from _check_writable(
            "output.url", home() / "runs", "the folder of runs", needed_bytes
        )
        return
    folder = workspace / Path(url.removeprefix("file://")).expanduser()
    yield from _check_writable("output.url", folder, url, needed_bytes)


def _check_writable(
    path: str, folder: Path, name: str, needed_bytes: int | None
) -> Iterator[Finding]:
    existing = _existing(folder)
    if error := _write_error(existing):
        yield _unwritable(path, folder, name, existing, error)
        return
    free = shutil.disk_usage(existing).free
    if free < max(needed_bytes or 0, _LEAST_BYTES):
        model_note = f", and the model has {byte_size(needed_bytes)}" if needed_bytes else ""
        yield Finding(
            path=path,
            level="warning",
            message=f"{name} has {byte_size(free)} free on this machine{model_note}",
            remedy="free some space, or choose a folder of a larger disk in output.url",
        )
        return
    yield Finding(
        path=path,
        level="note",
        message=f"{name} can be written on this machine; {byte_size(free)} are free",
    )


def _existing(folder: Path) -> Path:
    """Return the folder, or the first above it that exists."""
    return next(
        (parent for parent in (folder, *folder.absolute().parents) if parent.exists()), Path("/")
    )


def _write_error(folder: Path) -> str:
    """Write a file without a name, which no one sees; return why that failed."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * 4096)
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _unwritable(path: str, folder: Path, name: str, existing: Path, error: str) -> Finding:
    if existing == folder or not existing.is_dir():
        place = "" if existing == folder else f" ({existing})"
        return Finding(
            path=path,
            level="problem",
            message=f"{name} cannot be written{place}: {error}",
            remedy="choose a folder that you may write to, or leave output.url out",
        )
    return Finding(
        path=path,
        level="warning",
        message=f"{name} does not exist on this machine and cannot be created in {existing}:"
        f" {error}",
        remedy="make sure that it exists and is writable on the cluster's nodes",
    )


def _needed_bytes(config: TrainingConfig, workspace: Path) -> int | None:
    """Return the bytes of the model that is written, if a folder of it is here."""
    if config.method.saves == "adapter" and not config.output.merge_adapter:
        return None
    folder = find(config.model.id, (workspace,))
    if folder is None or not folder.is_dir():
        return None
    return sum(file.stat().st_size for glob in _WEIGHTS for file in folder.glob(glob)) or None


# --- Packages of trackers on this machine ---


def tracker_findings(names: Sequence[str]) -> Iterator[Finding]:
    """Yield a sentence for each tracker of `report_to`."""
    for name in (name for name in names if name in BACKENDS):
        if is_installed(name):
            yield Finding(
                path="report_to",
                level="note",
                message=f"the package of {name} is installed on this machine; the cluster's nodes"
                " need it too",
            )
            continue
        yield Finding(
            path="report_to",
            level="warning",
            message=f"the package of {name} is not installed on this machine, and a run on nodes"
            " without it sends it nothing",
            remedy=f"`packages: [{BACKENDS[name].package}]` installs it for the run; not needed if"
            " it is in the cluster's image",
        )


# --- The check of a run that is going to wait ---
# What `llmops check` finds is said before, not after.
# A run that begins at once reads its rows within a second and fails with the same sentence; one
# that waits for others would say so an hour later. So rows are tried here only while others leave
# it no place, and once for the same rows, tokenizer and hooks.


BEFORE_SUBMIT_S = 20.0
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
    result = check_closely(config, workspace, timeout_s=BEFORE_SUBMIT_S, progress=report, run=run)
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
