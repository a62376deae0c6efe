"""What one browser makes of a feed's frames."""

from __future__ import annotations

import json
import struct
from typing import Any

from llmops_kernel.kinds.train import COLUMNS
from llmops_kernel.server.hub import Frame
from llmops_kernel.server.runs.feed import RunFeed, RunsFeed
from llmops_kernel.views.columns import row_bytes


class Page:
    """What one browser makes of a feed's frames."""

    def __init__(self, feed: RunsFeed | RunFeed) -> None:
        self.feed = feed
        self.cursor: Any = None
        self.have: dict[str, Any] = {}
        self.rows = b""
        self.state: dict[str, Any] = {}
        self.runs: dict[str, dict[str, Any]] = {}

    def look(self) -> list[Frame]:
        self.feed.poll()
        return self.take()

    def take(self) -> list[Frame]:
        frames, self.cursor = self.feed.news(self.cursor, self.have)
        for frame in frames:
            json.dumps(frame.data, allow_nan=False)
            self._take(frame)
        return frames

    def _take(self, frame: Frame) -> None:
        if frame.kind == "runs":
            if frame.data["whole"]:
                self.runs.clear()
            for run_id in frame.data["removed"]:
                del self.runs[run_id]
            self.runs |= {row["run_id"]: row for row in frame.data["runs"]}
        elif frame.kind == "state":
            self.state = frame.data
        elif frame.kind == "rows":
            first = frame.data["first"] * row_bytes(COLUMNS)
            assert first <= len(self.rows)
            self.rows = self.rows[:first] + (frame.payload or b"")
            self.have = {"generation": frame.data["generation"], "rows": frame.data["count"]}

    @property
    def steps(self) -> list[int]:
        values = struct.unpack(f"<{len(self.rows) // 4}f", self.rows)
        return [int(value) for value in values[:: len(COLUMNS)]]
