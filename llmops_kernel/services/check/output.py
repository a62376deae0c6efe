"""Whether the result of a run can be written: tried on this machine, for folders."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.store.files import find
from llmops_kernel.store.paths import home
from llmops_kernel.store.preview_job import Finding
from llmops_kernel.views.format import byte_size

_LEAST_BYTES = 1 << 30
"""With less free, a warning also where the size of the result is not known."""
_WEIGHTS = ("*.safetensors", "*.bin")


def output_findings(config: TrainingConfig, workspace: Path) -> Iterator[Finding]:
    """Yield what a test of the output's folder has found; nothing is left there."""
    url = config.output.url
    if url is not None and "://" in url and not url.startswith("file://"):
        yield Finding(
            path="output.url",
            level="note",
            message=f"{url} was not tried: the cluster's nodes need the right to write there",
        )
        return
    needed = _needed_bytes(config, workspace)
    if url is None:
        yield from _tested("output.url", home() / "runs", "the folder of runs", needed)
        return
    folder = workspace / Path(url.removeprefix("file://")).expanduser()
    yield from _tested("output.url", folder, url, needed)


def _tested(path: str, folder: Path, name: str, needed: int | None) -> Iterator[Finding]:
    there = _existing(folder)
    if error := _write_error(there):
        yield _cannot(path, folder, name, there, error)
        return
    free = shutil.disk_usage(there).free
    if free < max(needed or 0, _LEAST_BYTES):
        more = f", and the model has {byte_size(needed)}" if needed else ""
        yield Finding(
            path=path,
            level="warning",
            message=f"{name} has {byte_size(free)} free on this machine{more}",
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
    return next((one for one in (folder, *folder.absolute().parents) if one.exists()), Path("/"))


def _write_error(folder: Path) -> str:
    """Write a file without a name, which no one sees; return why that failed."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * 4096)
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _cannot(path: str, folder: Path, name: str, there: Path, error: str) -> Finding:
    if there == folder or not there.is_dir():
        where = "" if there == folder else f" ({there})"
        return Finding(
            path=path,
            level="problem",
            message=f"{name} cannot be written{where}: {error}",
            remedy="choose a folder that you may write to, or leave output.url out",
        )
    return Finding(
        path=path,
        level="warning",
        message=f"{name} does not exist on this machine and cannot be created in {there}: {error}",
        remedy="it must be there, and writable, on the cluster's nodes",
    )


def _needed_bytes(config: TrainingConfig, workspace: Path) -> int | None:
    """Return the bytes of the model that is written, if a folder of it is here."""
    if config.method.saves == "adapter" and not config.output.merge_adapter:
        return None
    folder = find(config.model.id, (workspace,))
    if folder is None or not folder.is_dir():
        return None
    return sum(one.stat().st_size for glob in _WEIGHTS for one in folder.glob(glob)) or None
