"""Small outputs of a run in parts beside its journal, from where clients copy them.

The dashboard returns whole files only, so a file is cut into parts: an interrupted copy goes on
with the next part.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from llmops_kernel.errors import RunStateError
from llmops_kernel.metrics.events import OutputEvent, OutputFile
from llmops_kernel.store.record.record import Attempt, RunRecord

COPY_LIMIT_ENV_VAR: Final = "LLMOPS_COPY_OUTPUTS"
"""Bytes of the largest output that is offered; set on the nodes by the cluster template."""
DEFAULT_LIMIT_BYTES: Final = 256 * 2**20
MAX_LIMIT_BYTES: Final = 4 * 2**30
MAX_FILES: Final = 1000
PART_BYTES: Final = 8 * 2**20
NODE_BYTES: Final = 2**30
"""Parts of all runs that one node keeps; those of the oldest runs go first."""
FOLDER: Final = "outputs"


def copy_limit_bytes() -> int:
    """Return the limit of this node."""
    return limit_of(os.environ.get(COPY_LIMIT_ENV_VAR, ""))


def limit_of(value: str) -> int:
    """Return the limit that a node's environment sets; empty: the default."""
    return min(int(value), MAX_LIMIT_BYTES) if value.isdigit() else DEFAULT_LIMIT_BYTES


def part_names(file: OutputFile) -> list[str]:
    """Return the parts of a file, in order; none for an empty one."""
    return [f"{file.sha256}.{number:03}" for number in range(-(-file.size_bytes // PART_BYTES))]


def part_bytes(file: OutputFile, number: int) -> int:
    """Return the size of one part, counted from 0."""
    return min(PART_BYTES, file.size_bytes - number * PART_BYTES)


def announced(
    folder: Path,
    *,
    what: str,
    size_bytes: int | None,
    journal: Path | None,
    kept_at: str = "",
    **fields: Any,
) -> OutputEvent:
    """Return the event of an output; a small one is offered to clients. `fields` are its fields.

    `journal` is the folder that the dashboard shows; None for an output that clients have already.
    `kept_at`: path or URL of what outlives the nodes; empty if only this node has the output.
    """
    path = kept_at or str(folder)
    if journal is None:
        return OutputEvent(path=path, what=what, size_bytes=size_bytes, **fields)
    return OutputEvent(
        path=path,
        what=what,
        size_bytes=size_bytes,
        place="" if kept_at else "node",
        files=offer(folder, journal=journal, limit_bytes=copy_limit_bytes()),
        **fields,
    )


def offer(folder: Path, *, journal: Path, limit_bytes: int) -> tuple[OutputFile, ...]:
    """Write the files of an output as parts beside `journal`, and return them.

    Returns nothing, and writes nothing, where they are more than the limit or the disk is full.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    size = sum(path.stat().st_size for path in paths)
    if not paths or size > limit_bytes or len(paths) > MAX_FILES:
        return ()
    new_paths: list[Path] = []
    try:
        _make_room(journal, size)
        (journal / FOLDER).mkdir(parents=True, exist_ok=True)
        return tuple(_offer_file(path, folder, journal / FOLDER, new_paths) for path in paths)
    except OSError:
        for part in new_paths:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        return ()


def _offer_file(path: Path, folder: Path, target: Path, new_paths: list[Path]) -> OutputFile:
    name = path.relative_to(folder).as_posix()
    file = OutputFile(name=name, size_bytes=path.stat().st_size, sha256=file_sha256(path))
    for part, data in zip(part_names(file), _chunks(path), strict=True):
        if (target / part).exists():
            continue  # Another output of the run has the same file, as a tokenizer.
        scratch = target / f".{part}"
        new_paths += [scratch, target / part]
        scratch.touch(mode=0o600)
        scratch.write_bytes(data)
        scratch.rename(target / part)
    return file


def file_sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while data := stream.read(PART_BYTES):
            yield data


def _make_room(journal: Path, size_bytes: int) -> None:
    """Delete parts of the oldest other runs until the new ones fit in."""
    folders = [path for path in journal.parent.glob(f"*/{FOLDER}") if path.parent != journal]
    sizes = {path: _size(path) for path in sorted(folders, key=_age)}
    total = sum(sizes.values())
    for path, its_bytes in sizes.items():
        if total + size_bytes <= NODE_BYTES:
            return
        shutil.rmtree(path, ignore_errors=True)
        total -= its_bytes


def _age(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _size(folder: Path) -> int:
    return sum(_file_size(path) for path in _entries(folder))


def _entries(folder: Path) -> Sequence[Path]:
    with suppress(OSError):
        return list(folder.iterdir())
    return ()


def _file_size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


# --- Trusted addresses of a run's journal: those that the user's own config or template names ---
# A journal is written by the cluster. Were any address of it read, a run could decide where this
# machine sends requests that are signed with its user's credentials
# (`s3://x?endpoint_override=...`), or which page of the user's network it fetches.


_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hdfs")


def check_reported(url: str, record: RunRecord, attempts: Sequence[Attempt]) -> None:
    """Raise RunStateError for a URL that is not below `output.url` of the run's config, nor in the
    folder of the run in the cluster's `storage.runs`, as it was when the run was submitted.

    Paths of this machine's disks pass.
    """
    if "://" not in url or any(_is_below(url, base) for base in _named_urls(record, attempts)):
        return
    if any(attempt.run_storage is None for attempt in attempts) and _is_plain(url, record.run_id):
        return
    raise RunStateError(
        f"The journal of run {record.run_id} names an output at {url!r}, which neither output.url"
        " of its config nor storage.runs of its cluster's template names: it is not read.",
        remedy="if the address is right, copy the output to this machine with your store's own"
        " tool, and name that folder instead",
    )


def _named_urls(record: RunRecord, attempts: Sequence[Attempt]) -> Iterator[str]:
    output = record.config.get("output")
    if isinstance(output, dict) and "://" in str(output.get("url") or ""):
        yield str(output["url"])
    for attempt in attempts:
        if attempt.run_storage:
            yield f"{attempt.run_storage.rstrip('/')}/{record.run_id}"


def _is_below(url: str, base: str) -> bool:
    rest = url.removeprefix(base.rstrip("/"))
    if rest == url:
        return False
    return rest in ("", "/") or (rest.startswith("/") and _is_path(rest))


def _is_path(text: str) -> bool:
    return not any(mark in text for mark in ("?", "#", "::", "\\")) and ".." not in text.split("/")


def _is_plain(url: str, run_id: str) -> bool:
    """Return whether the storage of a run without a record of it is a folder in a bucket.

    Earlier versions recorded none. Options, chained file systems and servers do not count as plain.
    """
    scheme, _, rest = url.partition("://")
    return scheme in _STORES and "@" not in rest and _is_path(rest) and run_id in rest.split("/")
