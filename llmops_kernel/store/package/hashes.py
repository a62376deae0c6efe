"""Content hashes, remembered by what `stat` says, so that a submission reads only new files."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from llmops_kernel.store import paths
from llmops_kernel.store.files import private_folder, write_whole

HASH_DIGITS = 16
_SETTLED_NS = 2 * 10**9
_CHUNK_BYTES = 1 << 20

_Stamp = tuple[int, int, int]


def digest_of(data: bytes) -> str:
    """Return the first 16 hex digits of SHA-256."""
    return hashlib.sha256(data).hexdigest()[:HASH_DIGITS]


class HashCache:
    """Hashes of one folder's files; a cache that cannot be read or written only costs time."""

    def __init__(self, root: Path, *, folder: Path | None = None) -> None:
        base = paths.cache() if folder is None else folder
        self._path = base / "hashes" / f"{digest_of(os.fsencode(root))}.json"
        self._known: dict[str, tuple[_Stamp, str]] = {}
        self._current: dict[str, tuple[_Stamp, str]] = {}

    def __enter__(self) -> Self:
        with suppress(OSError, ValueError, TypeError, AttributeError):
            stored = json.loads(self._path.read_bytes())
            self._known = {
                rel: ((int(size), int(mtime), int(inode)), str(digest))
                for rel, (size, mtime, inode, digest) in stored.items()
            }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None or self._current == self._known:
            return
        stored = {rel: [*stamp, digest] for rel, (stamp, digest) in self._current.items()}
        with suppress(OSError):
            private_folder(self._path.parent)
            self._path.parent.chmod(0o700)  # Earlier versions let others list it: names of files.
            write_whole(self._path, json.dumps(stored).encode())

    def of(self, rel: str, *, path: Path, info: os.stat_result) -> str:
        """Return the file's hash. Raises `OSError`."""
        stamp = (info.st_size, info.st_mtime_ns, info.st_ino)
        cached = self._known.get(rel)
        if cached is not None and cached[0] == stamp:
            self._current[rel] = cached
            return cached[1]
        digest = _hash_file(path)
        # A file written this very moment may change again without a change of its stamp.
        if time.time_ns() - info.st_mtime_ns > _SETTLED_NS:
            self._current[rel] = (stamp, digest)
        return digest


def _hash_file(path: Path) -> str:
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            sha.update(chunk)
    return sha.hexdigest()[:HASH_DIGITS]
