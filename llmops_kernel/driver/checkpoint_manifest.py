"""What a checkpoint's files must be: sizes and hashes, written beside them, checked on resume."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

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
    """One file of a checkpoint."""

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

    def one(name: str) -> Entry:
        return Entry(names[name].size_bytes, sha256(folder / name))

    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


def wrong_files(folder: Path, expected: Manifest) -> list[str]:
    """Return the names that are not in the folder as expected. Raises OSError."""
    present = {name: entry for name, entry in expected.items() if (folder / name).is_file()}
    found = hashed(folder, present)
    return [
        name
        for name, entry in expected.items()
        if name not in found
        or (folder / name).stat().st_size != entry.size_bytes
        or entry.sha256 not in (None, found[name].sha256)
    ]


def sha256(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        buffer = memoryview(bytearray(_CHUNK_BYTES))
        while size := file.readinto(buffer):
            found.update(buffer[:size])
    return found.hexdigest()


def dumps(manifest: Manifest) -> str:
    files = {name: asdict(entry) for name, entry in sorted(manifest.items())}
    return json.dumps({"version": 1, "files": files}, indent=1)


def loads(text: str) -> dict[str, Entry]:
    """Raises ValueError for a text that is no manifest."""
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
            found = (folder / name).stat().st_size
        except OSError as error:
            return f"{name} cannot be read: {error.strerror or error}"
        if found != entry.size_bytes:
            return f"{name} has {found:,} of {entry.size_bytes:,} bytes"
    return ""


def hash_damage(folder: Path, *, share: int = 0, of: int = 1) -> str:
    """Return what is wrong with the content of this share of the files; empty: nothing."""
    try:
        manifest = read(folder) or {}
        known = {name: entry for name, entry in manifest.items() if entry.sha256}
        mine = {name: known[name] for name in _by_size(known)[share::of]}
        found = hashed(folder, mine)
    except (ValueError, OSError) as error:
        return str(error)
    wrong = [name for name, entry in mine.items() if found[name].sha256 != entry.sha256]
    return f"{wrong[0]} is not what was written (its SHA-256 differs)" if wrong else ""


def _by_size(manifest: Manifest) -> list[str]:
    """Largest first, so that each share gets about as many bytes."""
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
