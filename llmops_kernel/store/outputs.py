"""Small outputs of a run: in parts beside its journal, and as copies in its folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pydantic import ValidationError

from llmops_kernel.errors import RunStateError, StoreError
from llmops_kernel.metrics.events import OutputEvent, OutputFile, parse_event
from llmops_kernel.store.files import private_folder, store_errors
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record import Attempt, RunRecord

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


PROFILE: Final = "profile"
"""An output that is no result: the timelines of steps that were profiled."""


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


# --- Copies of a run's outputs in its folder, and the outputs that are still to be copied ---


_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MARK: Final = b'"output"'
_END_BYTES: Final = 2**20
"""An announcement of 1,000 files has 0.2 MB."""


def output_events(folder: RunFolder) -> list[OutputEvent]:
    """Read the outputs out of a journal: they stand at the ends of its streams."""
    events = []
    for path in sorted(folder.journal.glob("*.jsonl")):
        for line in _end_of(path).split(b"\n"):
            if _MARK in line and (event := _event(line)) is not None:
                events.append(event)
    return sorted(events, key=lambda event: event.time_s)


def _end_of(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _END_BYTES))
            return stream.read()
    except OSError:
        return b""


def _event(line: bytes) -> OutputEvent | None:
    try:
        event = parse_event(line)
    except ValidationError:
        return None
    return event if isinstance(event, OutputEvent) else None


def copied(event: OutputEvent, events: Iterable[OutputEvent]) -> OutputEvent | None:
    """Return the copy of an output, if one was made; of another attempt's output it is none."""
    copies = (
        candidate
        for candidate in events
        if candidate.copied_from == event.path and candidate.attempt == event.attempt
    )
    return next(copies, None)


def to_copy(events: Sequence[OutputEvent]) -> list[OutputEvent]:
    """Return the outputs that were offered and have no copy; of one that was rewritten the last.

    One in the cluster's storage needs none where this machine has that storage, too.
    """
    newest = {_place(event): event for event in events if event.files and not event.copied_from}
    return [
        event
        for event in newest.values()
        if copied(event, events) is None and (event.place or not Path(event.path).is_dir())
    ]


def only_on_cluster(events: Sequence[OutputEvent]) -> list[OutputEvent]:
    """Return the outputs that are lost with the cluster's nodes."""
    newest = {_place(event): event for event in events if not event.copied_from}
    lost = [event for event in newest.values() if event.place == "node"]
    return [event for event in lost if copied(event, events) is None]


def target_of(event: OutputEvent, folder: RunFolder) -> Path:
    """Return where the copy goes in the run's folder."""
    if event.what == PROFILE:
        return folder.root / "profiles" / _place(event)
    merged = event.what == "merged_model"
    return folder.root / "output-merged" if merged else folder.output


def _place(event: OutputEvent) -> str:
    """Return what the outputs have in common of which only the last one is kept."""
    steps = re.fullmatch(r"\d+-\d+", event.path.rpartition("/")[2])
    return (steps[0] if steps else "other") if event.what == PROFILE else event.what


class Copy:
    """A copy in the making, in a folder of its own; `finish` puts it in place as a whole."""

    def __init__(self, event: OutputEvent, folder: RunFolder) -> None:
        """Prepare a copy. Raises StoreError for names and sizes that no run of ours announces."""
        self.event, self.target = event, target_of(event, folder)
        self._making = folder.root / f".{self.target.name}.{event.attempt}.part"
        _check(event.files)

    def path(self, file: OutputFile) -> Path:
        return self._making / file.name

    def begin(self, file: OutputFile) -> int:
        """Return the bytes of a file that an interrupted copy has; raises StoreError."""
        path = self.path(file)
        with store_errors("write", path):
            private_folder(path.parent)
            path.touch(mode=0o600)
            return path.stat().st_size

    def write(self, file: OutputFile, data: bytes, *, offset: int) -> None:
        path = self.path(file)
        with store_errors("write", path), path.open("r+b") as stream:
            stream.truncate(offset)
            stream.seek(offset)
            stream.write(data)

    def check(self, file: OutputFile) -> None:
        """Raise StoreError, and forget the file, unless it is the one that was announced."""
        path = self.path(file)
        with store_errors("read", path):
            digest = file_sha256(path)
        if digest != file.sha256:
            path.unlink(missing_ok=True)
            raise StoreError(
                f"{file.name} of {self.event.path} does not have the SHA-256 that the run"
                f" announced: {digest[:12]} instead of {file.sha256[:12]}",
                remedy="the next command that follows the run copies it again",
            )

    def finish(self) -> None:
        """Replace the copy of an earlier attempt, if there is one. Raises StoreError."""
        old = self.target.with_name(f".{self.target.name}.old")
        with store_errors("write", self.target):
            self.target.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(old, ignore_errors=True)
            if self.target.exists():
                self.target.rename(old)
            self._making.rename(self.target)
            for leftover in (old, *self.target.parent.glob(f".{self.target.name}.*.part")):
                shutil.rmtree(leftover, ignore_errors=True)


def _check(files: Sequence[OutputFile]) -> None:
    """Raise StoreError for too many files, and for names that would lead out of the folder."""
    size = sum(file.size_bytes for file in files)
    if len(files) > MAX_FILES or size > MAX_LIMIT_BYTES or any(map(_is_unsafe, files)):
        raise StoreError(
            f"The cluster announces an output of {len(files)} files and {size} bytes that is not"
            " copied: too large, or a name that leaves its folder",
            remedy="set storage.runs in the cluster template to keep it",
        )


def _is_unsafe(file: OutputFile) -> bool:
    name = PurePosixPath(file.name)
    plain = str(name) == file.name and not name.is_absolute() and ".." not in name.parts
    fits = plain and file.name not in ("", ".") and "\0" not in file.name
    return not fits or file.size_bytes < 0 or _DIGEST.fullmatch(file.sha256) is None
