"""The code that a run was submitted with, from its kept package."""

from __future__ import annotations

import zipfile

from llmops_kernel.errors import RunNotFoundError, StoreError
from llmops_kernel.store.store import RunStore

MAX_SHOWN_BYTES = 1024**2


def code_of(store: RunStore, run_id: str, path: str) -> str:
    """Return a file of the run's workspace as text. Raises StoreError when it cannot be shown."""
    record = store.record(run_id)
    if path not in record.files:
        raise RunNotFoundError(
            f"Run {record.run_id} was submitted without the file {path!r}",
            remedy="the run's record lists the files that were submitted",
        )
    package = store.packages / f"{record.code_hash}.zip"
    try:
        with zipfile.ZipFile(package) as archive:
            if archive.getinfo(path).file_size > MAX_SHOWN_BYTES:
                raise StoreError(f"{path} is too large to display", remedy=f"unzip {package}")
            data = archive.read(path)
    except KeyError:
        raise StoreError(
            f"{path} was submitted as data, of which only the content hash is kept",
            remedy=f"compare its hash: {record.files[path]}",
        ) from None
    except (OSError, zipfile.BadZipFile) as error:
        raise StoreError(
            f"The code of run {record.run_id} is no longer kept",
            remedy=f"git may have it: revision {record.git.revision}" if record.git else "",
        ) from error
    if b"\0" in data:
        raise StoreError(f"{path} is not a text file", remedy=f"unzip {package}")
    return data.decode(errors="replace")


def git_diff_of(store: RunStore, run_id: str) -> str:
    """Return the diff of the workspace from its git revision, at most 1 MiB; empty for none."""
    path = store.folder(run_id).git_diff
    try:
        with path.open("rb") as file:
            return file.read(MAX_SHOWN_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
