"""Whether a client still submits a run: it holds a lock that ends with its process.

Without it a run whose client was killed in the middle would wait for a time limit that is as long
as the longest upload.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from llmops_kernel.store.files import private_home


@contextmanager
def submitting(home: Path, run_id: str) -> Iterator[None]:
    """Hold the lock of a run while it is submitted; take it before the run can be seen.

    Where there are no locks, or no space for the file, nothing is held and nothing is raised.
    """
    path = _path(home, run_id)
    lock = None
    with suppress(OSError):
        private_home(home)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another host that mounts this home may not see the lock.
        os.write(lock, socket.gethostname().encode())
    try:
        yield
    finally:
        # First the file: nobody may find it without its lock.
        with suppress(OSError):
            path.unlink(missing_ok=True)
        if lock is not None:
            os.close(lock)


def was_abandoned(home: Path, run_id: str) -> bool:
    """Return whether the process that submitted the run is gone; False where that is not known."""
    try:
        lock = os.open(_path(home, run_id), os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.read(lock, 256) == socket.gethostname().encode()
    except OSError:
        return False
    finally:
        os.close(lock)


def forget_abandoned(home: Path) -> None:
    """Remove the files of processes that are gone."""
    with suppress(OSError):
        for path in (home / "submitting").iterdir():
            if was_abandoned(home, path.name):
                with suppress(OSError):
                    path.unlink()


def _path(home: Path, run_id: str) -> Path:
    return home / "submitting" / run_id
