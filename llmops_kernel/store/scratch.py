"""Temporary folders that go with the process that made them, also if it is killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """Make a private folder in the temporary folder, and remove it at the end.

    A lock on it says that this process is there, or one that it has forked: the kernel drops the
    lock of a killed process, too. Whoever ends next removes the folder then.
    """
    folder, lock = _make_folder(name)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
        remove_abandoned(name)


def remove_abandoned(name: str) -> None:
    """Remove this user's folders of that name whose makers are gone."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(f"{name}-") and entry.is_dir(follow_symlinks=False):
                _remove_if_abandoned(Path(entry.path))


def _make_folder(name: str) -> tuple[Path, int]:
    """Return the folder and the descriptor that holds its lock."""
    # It gets the name that others look for once it is locked.
    hidden = Path(tempfile.mkdtemp(prefix=f".{name}-"))
    lock = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY)
    with suppress(OSError):  # A file system without locks: nobody else can lock it either.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    folder = hidden.with_name(hidden.name.removeprefix("."))
    hidden.rename(folder)
    return folder, lock


def _remove_if_abandoned(folder: Path) -> None:
    with suppress(OSError):
        if folder.lstat().st_uid != os.getuid():
            return
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
