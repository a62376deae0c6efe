"""Reads a journal into a view part by part, in bounded memory, and keeps what the view holds.

A run of a million steps with hundreds of numbers has a journal of gigabytes. Its view holds as many
rows as a screen can show (`thinning`), and a file of the cache holds the same together with how far
the journal was read: the next reader goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.store.files import private_folder, write_whole
from llmops_kernel.store.journal.journal import FolderTail, merge, read_lines
from llmops_kernel.store.journal.seen import SeenNumbers
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.paths import cache
from llmops_kernel.version import VERSION

MAX_CELLS = 2_000_000
"""Numbers that a view may hold: 110,000 rows of a usual run, 9,000 of one with 200 metrics."""
FEW_CELLS = 5_000
"""Limit for readers that show figures and a small curve: a list of runs follows many."""
PART_BYTES = 16 * 2**20
KEEP_BYTES = 64 * 2**20
"""After so much of a journal, what the view holds is kept; reading as much takes about a second."""
_FORMAT = f"2 {VERSION}"
_MARK_BYTES = 256


class LongJournal:
    """The reader of one view. Not for threads."""

    def __init__(
        self,
        folder: Path,
        view: RunView,
        *,
        run_id: str,
        max_cells: int = MAX_CELLS,
        long_cells: int = MAX_CELLS,
        part_bytes: int = PART_BYTES,
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        self._folder, self._view, self._run_id = folder, view, run_id
        self._max_cells, self._long_cells = max_cells, max(max_cells, long_cells)
        self._part_bytes, self._keep_bytes = part_bytes, keep_bytes
        self._tail: FolderTail | None = None
        self._kept_bytes = 0

    def read(
        self, arrived: Sequence[AnyEvent] = (), *, until_s: float = math.inf
    ) -> list[AnyEvent]:
        """Apply what is new, also events that came on another way; return the last part of it.

        At `until_s` of the monotonic clock it stops, though not before it has read as much as is
        worth keeping; the next call goes on. `is_behind` says so.
        """
        tail = self._opened()
        begin_bytes = self.num_bytes
        events = self._view.apply(merge([arrived, tail.read(self._part_bytes)]))
        self._view.thin(max_cells=self._cells)
        while tail.is_behind:
            if time.monotonic() > until_s and self.num_bytes - begin_bytes >= self._keep_bytes:
                break
            # Only the last part is returned: all of them may not fit into memory.
            events = self._view.apply(tail.read(self._part_bytes)) or events
            self._view.thin(max_cells=self._cells)
            self._keep_sometimes()
        self._keep_sometimes()
        return events

    def _opened(self) -> FolderTail:
        """Begin where the last reader stopped; at the first read, which many never ask for."""
        if self._tail is None:
            offsets = _restore(self._view, self._folder, self._run_id)
            self._tail, self._kept_bytes = FolderTail(self._folder, offsets), sum(offsets.values())
        return self._tail

    def thin(self, *, max_cells: int) -> None:
        """Hold fewer rows of a journal that is short enough to be read again."""
        if self.num_bytes < self._keep_bytes:
            self._view.thin(max_cells=max_cells)

    @property
    def _cells(self) -> int:
        """Return the number of cells: a reader without rows needs few, but the cache is for all."""
        return self._max_cells if self.num_bytes < self._keep_bytes else self._long_cells

    @property
    def is_behind(self) -> bool:
        """Return whether there is more to read; until then the view is that of an earlier time."""
        return self._tail is not None and self._tail.is_behind

    @property
    def num_bytes(self) -> int:
        return 0 if self._tail is None else sum(self._tail.offsets.values())

    def _keep_sometimes(self) -> None:
        """Cache the view now and then: writing takes longer than reading a little more."""
        fresh = self.num_bytes - self._kept_bytes
        if fresh >= self._keep_bytes and fresh >= self._kept_bytes // 8:
            self.keep()

    def keep(self) -> None:
        """Keep what the view holds of a long journal; without a disk only time is lost."""
        if self.num_bytes < self._keep_bytes or self.num_bytes == self._kept_bytes:
            return
        if self._view.stride > 1:
            self._view.thin(max_cells=self._cells // 2)  # The next reader is sooner ready.
        offsets = self._opened().offsets
        self._kept_bytes = sum(offsets.values())
        head = {
            "format": _FORMAT,
            "stride": self._view.stride,
            "streams": {
                name: [offset, _mark(self._folder / name, offset)]
                for name, offset in offsets.items()
            },
            "seen": {stream: numbers.state() for stream, numbers in self._view.seen.items()},
        }
        lines = [json.dumps(head), *(event.model_dump_json() for event in self._view.events)]
        path = _path(self._run_id)
        with suppress(OSError):
            private_folder(path.parent)
            write_whole(path, "".join(f"{line}\n" for line in lines).encode())


def forget(run_id: str) -> None:
    with suppress(OSError):
        _path(run_id).unlink(missing_ok=True)


def _restore(view: RunView, folder: Path, run_id: str) -> dict[str, int]:
    """Give the view what was kept; return how far the journal was read then, by file."""
    try:
        first, _, rest = _path(run_id).read_bytes().partition(b"\n")
        head = json.loads(first)
        if head["format"] != _FORMAT:
            return {}
        streams = {
            str(name): (int(offset), mark) for name, (offset, mark) in head["streams"].items()
        }
        if any(_mark(folder / name, offset) != mark for name, (offset, mark) in streams.items()):
            return {}  # The journal is another one.
        numbers = {stream: SeenNumbers(*state) for stream, state in head["seen"].items()}
        view.restore(read_lines(rest), numbers=numbers, stride=int(head["stride"]))
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {name: offset for name, (offset, _) in streams.items()}


def _mark(path: Path, offset: int) -> str:
    """Identify the lines before an offset: those of another journal have other times."""
    try:
        with path.open("rb") as file:
            begin = max(0, offset - _MARK_BYTES)
            file.seek(begin)
            data = file.read(offset - begin)
    except OSError:
        return ""
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}"


def _path(run_id: str) -> Path:
    return cache() / "long_runs" / f"{run_id}.jsonl"
