"""Topics `runs` (the list) and `run/<id>` (one run with its curves)."""

from __future__ import annotations

import time
from collections.abc import Callable

from llmops_kernel.jobs.follow import log_on_disk
from llmops_kernel.server.hub import Cursor, Frame, Json, frame
from llmops_kernel.server.runs.followers import Followers
from llmops_kernel.server.runs.rows import RunRows, missing, read_row
from llmops_kernel.server.wire import live
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.state_text import name_of

CLOCK_S = 1.0
"""Bars and times grow even when a run reports nothing new."""


class RunsFeed:
    """The whole list first, then what changed."""

    period_s = 1.0

    def __init__(self, rows: RunRows) -> None:
        self._rows = rows
        rows.open()

    def poll(self) -> None:
        self._rows.look()

    def news(self, cursor: Cursor, have: Json) -> tuple[list[Frame], Cursor]:
        if self._rows.version == 0:
            return [], cursor  # Before the first look there is no list: an empty one would lie.
        changed, gone, version = self._rows.since(cursor or 0)
        if cursor is not None and not changed and not gone:
            return [], version
        news = live.RunsNews(
            runs=changed,
            removed=gone,
            whole=cursor is None,
            # Runs that come late because there were many to read have not just ended.
            reading=cursor is not None and cursor < self._rows.read_version,
        )
        return [frame("runs", news)], version

    def close(self) -> None:
        self._rows.close()


class RunFeed:
    """Kinds `state` (what the panel shows) and `rows` (steps, packed).

    `have`: `{"generation", "rows"}` of a page that was here before; it gets only what is new.
    """

    period_s = 0.25

    def __init__(
        self,
        run_id: str,
        *,
        followers: Followers,
        store: RunStore,
        differs: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._followers = followers
        self._store = store
        self._differs = differs
        self._watched = followers.take(run_id)
        self._state: live.RunState | None = None
        self._version = 0
        self._seen = -1
        self._shown_s = 0.0

    def poll(self) -> None:
        watched = self._watched
        if not watched.run.folder_exists:
            raise missing(watched.run.id)
        watched.poll()
        now_s = time.monotonic()
        if watched.version != self._seen or now_s - self._shown_s >= CLOCK_S:
            self._seen, self._shown_s = watched.version, now_s
            with watched.lock:
                state = self._compose()
            if state != self._state:
                self._state = state
                self._version += 1

    def _compose(self) -> live.RunState:
        watched, run = self._watched, self._watched.run
        row = read_row(watched, self._store)
        row = row.model_copy(update={"differs": self._differs(row.run_id)})
        title = name_of(run.record, title=row.title, differs=row.differs)
        panel = watched.panel(time.time()).model_copy(update={"title": title})
        attempts = run.attempts
        log = log_on_disk(run.folder, run.record, attempts[-1]) if attempts else None
        return live.RunState(
            panel=panel,
            row=row,
            note=run.note,
            is_over=watched.is_over,
            attempts=[attempt.number for attempt in attempts],
            log_size=None if log is None else log.size,
        )

    def news(self, cursor: Cursor, have: Json) -> tuple[list[Frame], Cursor]:
        watched = self._watched
        with watched.lock:
            generation, count = watched.generation, watched.num_rows
            seen = cursor or (have.get("generation"), have.get("rows"), 0)
            frames = []
            if seen[2] != self._version and self._state is not None:
                frames.append(frame("state", self._state))
            first = _first_new(seen, generation=generation, count=count)
            if first < count or seen[0] != generation:
                rows = live.RunRows(
                    columns=watched.columns,
                    first=first,
                    generation=generation,
                    count=count,
                )
                frames.append(frame("rows", rows, watched.rows(first)))
        return frames, (generation, count, self._version)

    def close(self) -> None:
        self._followers.give_back(self._watched)


def _first_new(seen: Cursor, *, generation: str, count: int) -> int:
    had, rows, _ = seen
    known = had == generation and isinstance(rows, int) and 0 <= rows <= count
    return rows if known else 0
