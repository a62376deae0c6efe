"""Copies of a run's outputs in its folder, and the outputs that are still to be copied."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from pydantic import ValidationError

from llmops_kernel.errors import StoreError
from llmops_kernel.metrics.events import OutputEvent, OutputFile, parse_event
from llmops_kernel.store.files import private_folder, store_errors
from llmops_kernel.store.outputs.parts import MAX_FILES, MAX_LIMIT_BYTES, file_sha256
from llmops_kernel.store.paths import RunFolder

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
    newest = {event.what: event for event in events if event.files and not event.copied_from}
    return [
        event
        for event in newest.values()
        if copied(event, events) is None and (event.place or not Path(event.path).is_dir())
    ]


def only_on_cluster(events: Sequence[OutputEvent]) -> list[OutputEvent]:
    """Return the outputs that are lost with the cluster's nodes."""
    newest = {event.what: event for event in events if not event.copied_from}
    lost = [event for event in newest.values() if event.place == "node"]
    return [event for event in lost if copied(event, events) is None]


def target_of(event: OutputEvent, folder: RunFolder) -> Path:
    """Return where the copy goes in the run's folder."""
    merged = event.what == "merged_model"
    return folder.root / "output-merged" if merged else folder.output


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
