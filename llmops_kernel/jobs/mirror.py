"""Brings the journal that a run writes on the cluster's nodes into the run folder, over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Self

from pydantic import ValidationError

from llmops_kernel.clusters.provider import Connection
from llmops_kernel.errors import ClusterUnreachableError, LLMOpsError, StoreError
from llmops_kernel.jobs.aside import journal_lock
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.metrics.events import AnyEvent, parse_event
from llmops_kernel.runs.journal import StreamTail

TAIL_LINES = 256
"""Asked for at a time; when that does not reach back to what is known, the whole file is."""
MIN_PERIOD_S = 0.25
MAX_PERIOD_S = 2.0
"""A file that does not grow is asked for less and less often, up to this."""
DISCOVER_PERIOD_S = 3.0
DISCOVER_THREADS = 8
MAX_PUT_OFF_S = 15.0

Row = tuple[AnyEvent, bytes]


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
        """Rows after the last one seen, in order."""
        lines = TAIL_LINES if self.last_seq else -1
        rows = _rows(client.read_log(self.node_id, self.name, lines=lines))
        if lines != -1 and rows and min(event.seq for event, _ in rows) > self.last_seq + 1:
            rows = _rows(client.read_log(self.node_id, self.name, lines=-1))
        fresh = [row for row in rows if row[0].seq > self.last_seq]
        self.last_seq = max((event.seq for event, _ in fresh), default=self.last_seq)
        self.period_s = MIN_PERIOD_S if fresh else min(2 * self.period_s, MAX_PERIOD_S)
        self.due_s = time.monotonic() + self.period_s
        return fresh


@dataclass
class _LocalFile:
    tail: StreamTail
    seen: set[int] = field(default_factory=set)


class JournalMirror:
    """`sync` asks for what is new; two mirrors of one run in two processes do no harm."""

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def sync(self, *, everything: bool = False) -> list[AnyEvent]:
        """One round; returns the events read. Raises ClusterUnreachableError.

        `everything` asks for each file now, as after the end of a run.
        """
        with self._lock:
            try:
                if self._client is None:
                    self._client = JobsClient(self._connect())
                return self._round(self._client, everything=everything)
            except LLMOpsError:
                self.close()  # The way may be another one by the next round.
                raise

    def _round(self, client: JobsClient, *, everything: bool) -> list[AnyEvent]:
        now_s = time.monotonic()
        if everything or now_s >= self._discover_due_s:
            self._discover(client)
        events: list[AnyEvent] = []
        refused: LLMOpsError | None = None
        for file in self._remote.values():
            if not everything and now_s < file.due_s:
                continue
            try:
                rows = file.read(client)
            except ClusterUnreachableError as error:
                # A node that hangs must not hold back what the others tell.
                file.put_off()
                refused = error
                continue
            self._unwritten.setdefault(file.stream, []).extend(rows)
            events += [event for event, _ in rows]
        self._write()
        if refused is not None and not events:
            raise refused
        return events

    def _discover(self, client: JobsClient) -> None:
        """Raises ClusterUnreachableError when the cluster is; a node that hangs is left out."""
        begun_s = time.monotonic()
        nodes = client.node_ids()
        with ThreadPoolExecutor(DISCOVER_THREADS) as pool:
            found = pool.map(lambda node_id: self._files_of(client, node_id), nodes)
            for node_id, names in zip(nodes, found, strict=True):
                for name in names:
                    self._remote.setdefault((node_id, name), _RemoteFile(node_id, name))
        now_s = time.monotonic()
        # A cluster of many nodes is not kept busy with being asked.
        self._discover_due_s = now_s + max(DISCOVER_PERIOD_S, 10 * (now_s - begun_s))

    def _files_of(self, client: JobsClient, node_id: str) -> list[str]:
        try:
            return client.log_files(node_id, glob=self._glob)
        except ClusterUnreachableError:
            return []

    def _write(self) -> None:
        """A full disk is tried again with the next round."""
        for stream in [stream for stream, rows in self._unwritten.items() if rows]:
            try:
                with journal_lock(self._journal):
                    self._append(stream, self._unwritten[stream])
            except (OSError, StoreError):
                continue
            self._unwritten[stream] = []

    def _append(self, stream: str, rows: list[Row]) -> None:
        path = self._journal / f"{stream}.jsonl"
        local = self._local.setdefault(stream, _LocalFile(StreamTail(path)))
        local.seen.update(event.seq for event in local.tail.read())
        data = b"".join(line + b"\n" for event, line in rows if event.seq not in local.seen)
        if not data:
            return
        with path.open("ab+") as file:
            if file.tell():
                file.seek(-1, 2)
                data = data if file.read(1) == b"\n" else b"\n" + data
            file.write(data)


def _rows(data: bytes | None) -> list[Row]:
    """Whole lines that can be read; the writer may be inside its last one."""
    rows: list[Row] = []
    for line in (data or b"").split(b"\n")[:-1]:
        try:
            rows.append((parse_event(line), line))
        except ValidationError:
            continue
    return rows
