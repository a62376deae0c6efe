"""Copies the journal that a run writes on the cluster's nodes to the run folder, over HTTP.

At the run's end its small outputs are copied as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final, Self

from llmops_kernel.errors import ClusterUnreachableError, LLMOpsError, StoreError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.observer import append_as_observer, journal_lock
from llmops_kernel.metrics.events import AnyEvent, OutputEvent, OutputFile
from llmops_kernel.providers.protocol import Connection
from llmops_kernel.store.files import file_lock
from llmops_kernel.store.journal.journal import numbered_lines, read_lines
from llmops_kernel.store.outputs import (
    FOLDER,
    PART_BYTES,
    Copy,
    copied,
    output_events,
    part_bytes,
    part_names,
    to_copy,
)
from llmops_kernel.store.paths import RunFolder

TAIL_LINES = 256
"""Lines of one request; when they do not reach back to what is known, the whole file is read."""
MIN_PERIOD_S = 0.25
MAX_PERIOD_S = 2.0
"""A file that does not grow is read less and less often, up to this."""
DISCOVER_PERIOD_S = 3.0
DISCOVER_THREADS = 8
MAX_PUT_OFF_S = 15.0
QUICK_S = 2.0
"""A refusal that comes sooner holds back nothing; its file is asked for again in the next round."""

Row = tuple[int, bytes]
"""(sequence number, line)."""


@dataclass
class _RemoteFile:
    node_id: str
    name: str
    last_seq: int = 0
    due_s: float = 0.0
    period_s: float = MIN_PERIOD_S

    def put_off(self) -> None:
        self.period_s = min(2 * self.period_s, MAX_PUT_OFF_S)
        self.due_s = time.monotonic() + self.period_s

    @property
    def stream(self) -> str:
        return PurePosixPath(self.name).stem

    def read(self, client: JobsClient) -> list[Row]:
        """Return the rows after the last one seen, in order."""
        lines = TAIL_LINES if self.last_seq else -1
        rows = _rows(client.read_log(self.node_id, self.name, lines=lines))
        if lines != -1 and rows and min(seq for seq, _ in rows) > self.last_seq + 1:
            rows = _rows(client.read_log(self.node_id, self.name, lines=-1))
        unseen = [row for row in rows if row[0] > self.last_seq]
        self.last_seq = max((seq for seq, _ in unseen), default=self.last_seq)
        self.period_s = MIN_PERIOD_S if unseen else min(2 * self.period_s, MAX_PERIOD_S)
        self.due_s = time.monotonic() + self.period_s
        return unseen


@dataclass
class _LocalFile:
    path: Path
    offset: int = 0
    seqs: set[int] = field(default_factory=set)

    def read(self) -> None:
        """Note the lines that another mirror has written since the last call."""
        with self.path.open("ab+") as file:
            if file.tell() < self.offset:  # Replaced by another file.
                self.offset, self.seqs = 0, set()
            file.seek(self.offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        self.seqs.update(seq for seq, _ in numbered_lines(whole))

    def append(self, rows: list[Row]) -> None:
        """Append the lines that the file lacks."""
        self.read()
        # Nodes that share a disk all show the same file.
        unseen = dict(row for row in rows if row[0] not in self.seqs)
        data = b"".join(line + b"\n" for line in unseen.values())
        if not data:
            return
        with self.path.open("ab+") as file:
            end = file.tell()
            if end > self.offset:  # Close off the half line of a writer that was killed.
                data = b"\n" + data
            file.write(data)
        if end == self.offset:
            # Only what others write has to be read again.
            self.offset += len(data)
            self.seqs.update(unseen)


class JournalMirror:
    """`sync` fetches what is new; two mirrors of one run in two processes do no harm."""

    def __init__(
        self,
        connection: Connection | Callable[[], Connection],
        *,
        run_id: str,
        journal: Path,
    ) -> None:
        self._connect = connection if callable(connection) else lambda: connection
        self._client: JobsClient | None = None
        self._glob = f"llmops/{run_id}/*.jsonl"
        self._journal = journal
        self._remote: dict[tuple[str, str], _RemoteFile] = {}
        self._local: dict[str, _LocalFile] = {}
        self._unwritten: dict[str, list[Row]] = {}
        self._discover_due_s = 0.0
        self._lock = threading.Lock()
        self.not_copied: StoreError | None = None
        """Why outputs are not here, if trying again would not help."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def sync(self, *, everything: bool = False) -> list[AnyEvent]:
        """Copy new lines to the run folder; return the events that could not be written there.

        `everything` reads each file now, as after the end of a run, and then copies its small
        outputs. Raises ClusterUnreachableError.
        """
        with self._lock:
            try:
                if self._client is None:
                    self._client = JobsClient(self._connect())
                events = self._round(self._client, everything=everything)
                if everything and not events:
                    self._copy_outputs(self._client)
                return events
            except LLMOpsError:
                self.close()  # The route may be another one by the next round.
                raise

    def _round(self, client: JobsClient, *, everything: bool) -> list[AnyEvent]:
        now_s = time.monotonic()
        if everything or now_s >= self._discover_due_s:
            self._discover(client)
        read: dict[str, list[Row]] = {}
        failure: LLMOpsError | None = None
        for file in self._remote.values():
            if not everything and now_s < file.due_s:
                continue
            begun_s = time.monotonic()
            try:
                rows = file.read(client)
            except ClusterUnreachableError as error:
                # A node that hangs must not hold back the other nodes' events.
                if time.monotonic() - begun_s > QUICK_S:
                    file.put_off()
                failure = error
                continue
            self._unwritten.setdefault(file.stream, []).extend(rows)
            read.setdefault(file.stream, []).extend(rows)
        self._write()
        if failure is not None and not any(read.values()):
            raise failure
        refused_lines = [rows for stream, rows in read.items() if self._unwritten[stream]]
        return read_lines(b"".join(line + b"\n" for rows in refused_lines for _, line in rows))

    def _copy_outputs(self, client: JobsClient) -> None:
        """Copy outputs; after ClusterUnreachableError the next call continues from there."""
        if self.not_copied is None:
            try:
                copy_outputs(client, RunFolder(self._journal.parent))
            except StoreError as error:
                self.not_copied = error

    def _discover(self, client: JobsClient) -> None:
        """Find new files. Raises ClusterUnreachableError; a node that hangs is left out."""
        begun_s = time.monotonic()
        nodes = client.node_ids()
        with ThreadPoolExecutor(DISCOVER_THREADS) as pool:
            listings = pool.map(lambda node_id: self._files_of(client, node_id), nodes)
            for node_id, names in zip(nodes, listings, strict=True):
                for name in names:
                    self._remote.setdefault((node_id, name), _RemoteFile(node_id, name))
        now_s = time.monotonic()
        # Listing the files of many nodes must not keep the cluster busy.
        self._discover_due_s = now_s + max(DISCOVER_PERIOD_S, 10 * (now_s - begun_s))

    def _files_of(self, client: JobsClient, node_id: str) -> list[str]:
        try:
            return client.log_files(node_id, glob=self._glob)
        except ClusterUnreachableError:
            return []

    def _write(self) -> None:
        """Write what was read; a full disk is tried again in the next round."""
        for stream in [stream for stream, rows in self._unwritten.items() if rows]:
            try:
                with journal_lock(self._journal):
                    self._file(stream).append(self._unwritten[stream])
            except (OSError, StoreError):
                continue
            self._unwritten[stream] = []

    def _file(self, stream: str) -> _LocalFile:
        path = self._journal / f"{stream}.jsonl"
        return self._local.setdefault(stream, _LocalFile(path))


def _rows(data: bytes | None) -> list[Row]:
    """Return whole lines with their numbers; the last line may still be incomplete."""
    lines = data or b""
    return numbered_lines(lines[: lines.rfind(b"\n") + 1])


# --- Copies of small outputs from the cluster's nodes to the run folder, over HTTP ---


_LOCK: Final = ".outputs.lock"


def copy_outputs(client: JobsClient, folder: RunFolder) -> list[OutputEvent]:
    """Copy the outputs that the run offers and this folder lacks; return what was copied.

    What an interrupted call has copied is kept. Parts that no node has any more are left out.
    Raises ClusterUnreachableError, StoreError.
    """
    if not to_copy(output_events(folder)):
        return []
    # Several clients may follow the run: only one of them copies.
    with file_lock(folder.root / _LOCK, mode=0o600):
        waiting = to_copy(output_events(folder))
        nodes = _nodes_with_parts(client, folder) if waiting else {}
        copies = [_copy_output(client, folder, event, nodes) for event in waiting]
        return [event for event in copies if event is not None]


def _copy_output(
    client: JobsClient, folder: RunFolder, event: OutputEvent, nodes: dict[str, str]
) -> OutputEvent | None:
    copy = Copy(event, folder)
    if any(part not in nodes for file in event.files for part in part_names(file)):
        return None
    for file in event.files:
        _fetch(client, copy, file, nodes, run_id=folder.root.name)
        copy.check(file)
    copy.finish()
    at_home = event.model_copy(
        update={"path": str(copy.target), "copied_from": event.path, "place": "", "files": ()}
    )
    return append_as_observer(
        folder.journal,
        at_home.model_copy(update={"stream": "", "seq": 0, "time_s": 0.0}),
        attempt=event.attempt,
        unless=lambda: copied(event, output_events(folder)) is not None,
    )


def _fetch(
    client: JobsClient, copy: Copy, file: OutputFile, nodes: dict[str, str], *, run_id: str
) -> None:
    has_bytes = copy.begin(file)
    parts: Sequence[str] = part_names(file)
    for number in range(min(has_bytes // PART_BYTES, len(parts)), len(parts)):
        part, offset = parts[number], number * PART_BYTES
        data = client.read_log(nodes[part], f"llmops/{run_id}/{FOLDER}/{part}", lines=-1)
        expected = part_bytes(file, number)
        if data is None or len(data) != expected:
            raise ClusterUnreachableError(
                f"Part {number + 1} of {len(parts)} of {file.name} arrived with"
                f" {0 if data is None else len(data)} of {expected} bytes",
                remedy="the next command that follows the run continues with it",
            )
        copy.write(file, data, offset=offset)


def _nodes_with_parts(client: JobsClient, folder: RunFolder) -> dict[str, str]:
    """Return the node of each part. Raises ClusterUnreachableError if a node does not answer."""
    glob = f"llmops/{folder.root.name}/{FOLDER}/*"
    return {
        PurePosixPath(path).name: node
        for node in client.node_ids()
        for path in client.log_files(node, glob=glob, strict=True)
    }
