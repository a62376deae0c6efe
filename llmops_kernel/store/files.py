"""Write files so that they are whole or absent; distinguish a full disk from a wrong path."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from llmops_kernel.errors import StoreError
from llmops_kernel.store.paths import HOME_ENV_VAR

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK})


@contextmanager
def store_errors(action: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` inside into a `StoreError` with its remedy."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"Cannot {action} {path}: {error.strerror or error}", remedy=_remedy(error, path)
        ) from error


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


def find(source: str, roots: Sequence[Path]) -> Path | None:
    """Return the first existing path among the roots; an absolute path is used as it is."""
    expanded = Path(source).expanduser()
    candidates = [expanded] if expanded.is_absolute() else []
    candidates += [root / source for root in roots]
    return next((path for path in candidates if path.exists()), None)
