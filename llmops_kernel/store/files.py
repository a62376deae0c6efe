"""Write files so that they are whole or absent; distinguish a full disk from a wrong path."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from llmops_kernel.errors import StoreError
from llmops_kernel.store.paths import HOME_ENV_VAR, default_home

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PATTERN = frozenset("*?[")
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK})


def private_folder(path: Path) -> None:
    """Create a folder and its missing parents so that only this user can enter them.

    The mode of a folder that exists stays. Raises `OSError`.
    """
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)  # Raises where it is a file.


def least_used(paths: Iterable[Path], *, limit_bytes: int) -> list[Path]:
    """Return the files to remove so that the others have at most `limit_bytes`.

    Those that were not used for the longest time go first; a use sets a file's time of change.
    """
    entries = []
    for path in paths:
        with suppress(OSError):  # Removed meanwhile.
            info = path.stat()
            entries.append((info.st_mtime_ns, info.st_size, path))
    total, unused = 0, []
    for _, size, path in sorted(entries, reverse=True):
        total += size
        if total > limit_bytes:
            unused.append(path)
    return unused


def readable_by_others(folder: Path) -> bool:
    """Return whether other users can list or enter a folder; False if it does not exist."""
    with suppress(OSError):
        return bool(stat.S_IMODE(folder.stat().st_mode) & 0o077)
    return False


def private_home(root: Path) -> None:
    """Create the home folder for this user only. Raises `OSError`.

    Earlier versions left it open to others: the default one is closed. One that LLMOPS_HOME
    names may be shared on purpose; `llmops doctor` reports it.
    """
    private_folder(root)
    if root == default_home() and readable_by_others(root):
        with suppress(OSError):  # Somebody else's, or a file system without modes.
            root.chmod(0o700)


def is_own_folder(path: Path) -> bool:
    """Return whether it is a folder of this user, and no link to one. Raises `OSError`."""
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def own_temp_folder(name: str) -> Path:
    """Return a folder of this user in the temporary folder, where names can be guessed.

    Raises StoreError where another user has made it first.
    """
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    with store_errors("create", folder):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if not is_own_folder(folder):
            raise StoreError(
                f"{folder} belongs to another user or is not a folder: what a run writes there"
                " would not be safe from others.",
                remedy=f"remove {folder}, ask its owner to, or set TMPDIR to a folder of yours",
            )
        if stat.S_IMODE(folder.lstat().st_mode) & 0o077:
            folder.chmod(0o700)
    return folder


@contextmanager
def store_errors(action: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` inside into a `StoreError` with its remedy."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"Cannot {action} {path}: {error.strerror or error}", remedy=_remedy(error, path)
        ) from error


@contextmanager
def file_lock(path: Path, *, mode: int) -> Iterator[None]:
    """Hold the lock of a file, made with `mode`; the kernel releases it when the holder dies.

    Raises StoreError where the file cannot be opened.
    """
    with store_errors("lock", path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT, mode)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _remedy(error: OSError, path: Path) -> str:
    move = f"or set {HOME_ENV_VAR} to a folder on another disk"
    if error.errno in _FULL:
        return f"free space on the disk of {path.parent} (`llmops rm` removes old runs), {move}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"make {path.parent} writable for this user, {move}"
    return f"check the disk and that {path.parent} is a folder, {move}"


def write_new(path: Path, data: bytes) -> None:
    """Write a file that did not exist. Raises `FileExistsError`; never overwrites."""
    temporary = _write_temporary(path, data)
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # A file system without hard links: exclusive creation keeps the promise not to
        # overwrite, though a crash inside the write may leave part of the file.
        with path.open("xb") as file:
            file.write(data)
            os.fsync(file.fileno())
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def write_whole(path: Path, data: bytes) -> None:
    """Write or replace a file; readers see the old or the new content, never a part."""
    temporary = _write_temporary(path, data)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _write_temporary(path: Path, data: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # Some file systems cannot; the rename itself has happened.
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def is_pattern(path: str) -> bool:
    """Return whether a path or URL names files by a pattern, as `rows/*.jsonl` does."""
    return not _PATTERN.isdisjoint(path)


def find(source: str, roots: Sequence[Path]) -> Path | None:
    """Return the first existing path among the roots; an absolute path is used as it is."""
    expanded = Path(source).expanduser()
    candidates = [expanded] if expanded.is_absolute() else []
    candidates += [root / source for root in roots]
    return next((path for path in candidates if path.exists()), None)


# --- Temporary folders that go with the process that made them, also if it is killed ---


_SCRATCH_MARK = ".llmops-scratch"
"""A file in each folder of `scratch_folder`, without which none is removed as abandoned."""


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
    (hidden / _SCRATCH_MARK).touch()
    lock = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY)
    with suppress(OSError):  # A file system without locks: nobody else can lock it either.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    folder = hidden.with_name(hidden.name.removeprefix("."))
    hidden.rename(folder)
    return folder, lock


def _remove_if_abandoned(folder: Path) -> None:
    with suppress(OSError):
        # Somebody may have a folder of such a name that is none of ours.
        if folder.lstat().st_uid != os.getuid() or not (folder / _SCRATCH_MARK).is_file():
            return
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
