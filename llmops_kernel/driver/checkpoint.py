"""Checkpoints on disk: which are complete, and the sizes and hashes that their files must have."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TypeVar

MARKER: Final = "llmops-complete"
MANIFEST: Final = "llmops-manifest.json"
CHECKED: Final = ".llmops-checked"
"""The attempt of a script that has compared the hashes: its other workers need not."""
PART: Final = ".part"
_OWN: Final = (MARKER, f".{MARKER}", MANIFEST, f".{MANIFEST}", CHECKED)
_CHUNK_BYTES: Final = 4 << 20  # Large: each chunk costs the training thread a turn of the GIL.
_THREADS: Final = min(4, os.cpu_count() or 1)
_NO_FOLDER_SYNC: Final = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES)


@dataclass(frozen=True)
class Entry:
    """A file of a checkpoint."""

    size_bytes: int
    sha256: str | None = None
    """None until it was computed, which the training does not wait for."""


Manifest = Mapping[str, Entry]
"""By path relative to the checkpoint's folder, with `/`."""


def is_own(name: str) -> bool:
    """Return True for the marker, the manifest, their drafts and a file that is being fetched."""
    return name in _OWN or (name.startswith(".") and name.endswith(PART))


def content(folder: Path) -> list[Path]:
    """Return a checkpoint's files, without ours."""
    # Other hidden files count: `.metadata` is a part of each of torch's sharded checkpoints.
    return sorted(path for path in folder.rglob("*") if path.is_file() and not is_own(path.name))


def sizes(folder: Path) -> dict[str, Entry]:
    """Return what is in the folder now, without hashes."""
    return {
        path.relative_to(folder).as_posix(): Entry(path.stat().st_size) for path in content(folder)
    }


def hashed(folder: Path, names: Manifest, *, threads: int = _THREADS) -> dict[str, Entry]:
    """Return the entries with the hash of each file. Raises OSError."""

    def hash_file(name: str) -> Entry:
        return Entry(names[name].size_bytes, sha256(folder / name))

    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(names, pool.map(hash_file, names), strict=True))


def wrong_files(folder: Path, expected: Manifest) -> list[str]:
    """Return the names that are not in the folder as expected. Raises OSError."""
    present = {name: entry for name, entry in expected.items() if (folder / name).is_file()}
    actual = hashed(folder, present)
    return [
        name
        for name, entry in expected.items()
        if name not in actual
        or (folder / name).stat().st_size != entry.size_bytes
        or entry.sha256 not in (None, actual[name].sha256)
    ]


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        buffer = memoryview(bytearray(_CHUNK_BYTES))
        while size := file.readinto(buffer):
            digest.update(buffer[:size])
    return digest.hexdigest()


def dumps(manifest: Manifest) -> str:
    files = {name: asdict(entry) for name, entry in sorted(manifest.items())}
    return json.dumps({"version": 1, "files": files}, indent=1)


def loads(text: str) -> dict[str, Entry]:
    """Parse a manifest. Raises ValueError for a text that is none."""
    try:
        files = json.loads(text)["files"]
        return {
            name: Entry(int(entry["size_bytes"]), entry.get("sha256"))
            for name, entry in files.items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a manifest: {error}") from error


def read(folder: Path) -> dict[str, Entry] | None:
    """Return None for a checkpoint of an earlier version. Raises ValueError for a damaged one."""
    try:
        return loads((folder / MANIFEST).read_text())
    except FileNotFoundError:
        return None


def write(folder: Path, manifest: Manifest) -> None:
    write_durably(folder / MANIFEST, dumps(manifest))


def size_damage(folder: Path) -> str:
    """Return what is wrong with a checkpoint as far as sizes show it; empty: nothing.

    Reads no file's content, so it is quick also for large checkpoints.
    """
    try:
        manifest = read(folder)
    except (ValueError, OSError) as error:
        return f"{MANIFEST} cannot be read: {error}"
    for name, entry in (manifest or {}).items():
        try:
            size = (folder / name).stat().st_size
        except OSError as error:
            return f"{name} cannot be read: {error.strerror or error}"
        if size != entry.size_bytes:
            return f"{name} has {size:,} of {entry.size_bytes:,} bytes"
    return ""


def hash_damage(folder: Path, *, share: int = 0, num_shares: int = 1) -> str:
    """Return what is wrong with the content of this share of the files; empty: nothing."""
    try:
        manifest = read(folder) or {}
        hashed_entries = {name: entry for name, entry in manifest.items() if entry.sha256}
        mine = {name: hashed_entries[name] for name in _by_size(hashed_entries)[share::num_shares]}
        actual = hashed(folder, mine)
    except (ValueError, OSError) as error:
        return str(error)
    wrong = [name for name, entry in mine.items() if actual[name].sha256 != entry.sha256]
    return f"{wrong[0]} is not what was written (its SHA-256 differs)" if wrong else ""


def _by_size(manifest: Manifest) -> list[str]:
    """Sort names by size, largest first, so that each share gets about as many bytes."""
    return sorted(manifest, key=lambda name: (-manifest[name].size_bytes, name))


def sync(folder: Path) -> None:
    """Wait until the folder's files and folders survive a power loss. Raises OSError.

    File systems report a delayed write error (a full quota on NFS) only here.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(_sync_file, content(folder)):
            pass
    for path in [*_folders(folder), folder, folder.parent]:
        sync_folder(path)


def _folders(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*"), reverse=True) if path.is_dir())


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(path: Path) -> None:
    try:
        _sync_file(path)
    except OSError as error:  # Some network file systems have no fsync for folders.
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def write_durably(path: Path, text: str) -> None:
    """Write a small file so that after a power loss it is the old one or the new one."""
    scratch = path.with_name(f".{path.name}")
    with scratch.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.rename(path)
    sync_folder(path.parent)


def unmark(folder: Path) -> None:
    """Make a checkpoint an interrupted one: a new writing into its folder is then no mixture."""
    with suppress(FileNotFoundError):
        (folder / MARKER).unlink()
        sync_folder(folder)


# --- Checkpoint folders: complete ones, the newest, rotation ---


_NAME = re.compile(r"checkpoint-(\d+)$")
_WHOLE = "all workers have written their part\n"


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    step: int


def marked(folder: Path) -> list[Checkpoint]:
    """Return the checkpoints that were marked complete, oldest first; some may be damaged."""
    checkpoints = [
        Checkpoint(path, int(match.group(1)))
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := _NAME.search(path.name)) and (path / MARKER).exists()
    ]
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.step)


def complete(folder: Path) -> list[Checkpoint]:
    """Return the complete checkpoints, oldest first; interrupted and truncated ones are left out.

    Those of earlier versions have no manifest: their marker decides.
    """
    return [checkpoint for checkpoint in marked(folder) if not size_damage(checkpoint.path)]


def latest(folder: Path) -> Checkpoint | None:
    for checkpoint in reversed(marked(folder)):
        if not size_damage(checkpoint.path):
            return checkpoint
    return None


def step_of(name: str) -> int | None:
    """Return 12 for `checkpoint-12`; None for other names."""
    match = _NAME.search(name)
    return int(match.group(1)) if match else None


def token(path: Path) -> str | None:
    """Return the token given to `mark_complete`; None if the checkpoint is not complete."""
    try:
        return (path / MARKER).read_text().strip()
    except OSError:
        return None


def mark_complete(
    path: Path,
    *,
    token: str = _WHOLE,
    files: Manifest | None = None,
    has_other_copy: bool = False,
) -> None:
    """Mark a checkpoint complete, atomically and durably; all workers must have written.

    `files`: what it consists of, if not of what is in the folder now. `has_other_copy`: a bucket
    has it as well, so the training need not wait for this disk. Raises OSError.
    """
    if not has_other_copy:
        sync(path)
    write(path, sizes(path) if files is None else files)
    write_durably(path / MARKER, token)


def rotate(folder: Path, *, keep: int) -> list[Path]:
    """Delete all complete checkpoints but the newest `keep`, and interrupted ones before those."""
    checkpoints = complete(folder)
    kept_paths = {checkpoint.path for checkpoint in checkpoints[-keep:]}
    newest = checkpoints[-1].step if checkpoints else 0
    deleted = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _NAME.search(path.name)
        if match and path not in kept_paths and int(match.group(1)) <= newest:
            # The marker goes first: a half-deleted folder must not look complete.
            (path / MARKER).unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)
            deleted.append(path)
    return deleted


def size_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


# --- Hashes of a complete checkpoint, made beside the training ---


T = TypeVar("T")


def hashed_while(folder: Path, work: Callable[[], T]) -> tuple[dict[str, Entry], T]:
    """Return the manifest with hashes, computed while `work` uploads the same files."""
    with ThreadPoolExecutor(1) as pool:
        hashes = pool.submit(lambda: hashed(folder, sizes(folder)))
        result = work()
        return hashes.result(), result


class HashesLater:
    """Adds hashes to checkpoints' manifests, one checkpoint at a time, in threads of its own.

    Until they are added a checkpoint is known by its sizes, which fsync made durable.
    """

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._threads: list[threading.Thread] = []

    def add(self, folder: Path) -> None:
        """Return at once."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        # A daemon: the end of a failed process must not wait for hashes.
        thread = threading.Thread(
            target=self._hash, args=(folder,), name="llmops-hashes", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def wait(self, *, limit_s: float) -> None:
        deadline_s = time.monotonic() + limit_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _hash(self, folder: Path) -> None:
        # A folder that was rotated away meanwhile needs none.
        with self._one_at_a_time, suppress(OSError, ValueError):
            sizes = read(folder)
            if not sizes or not (folder / MARKER).exists():
                return
            # One thread: a training on a CPU needs the others.
            hashes = hashed(folder, sizes, threads=1)
            if read(folder) == sizes and not size_damage(folder):
                write(folder, hashes)
