"""TensorBoard: event files, by TensorBoard's own writer."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from llmops_kernel.errors import TrackerError
from llmops_kernel.trackers.rows import Row
from llmops_kernel.trackers.tracker import Link, TrackedRun

_SUFFIX: Final = ".llmops"
_FILES: Final = f"events.out.tfevents.*{_SUFFIX}"


class TensorBoardTracker:
    """Numbers as scalars, all else as text.

    The mark is the sizes of its files: what was written behind them by a process that was killed
    before it could say so is cut off, and written again.
    """

    def open(self, run: TrackedRun, *, known: str, mark: str, warn: Callable[[str], None]) -> Link:
        parent = run.settings.tensorboard_dir or os.environ.get("TENSORBOARD_LOGGING_DIR")
        if not parent and run.home is None:
            raise TrackerError(
                "No folder for TensorBoard's files is set",
                remedy="set tracking.tensorboard_dir to a folder that outlives the cluster",
            )
        self._folder = Path(parent or f"{run.home}/trackers/tensorboard") / run.run_id
        self._folder.mkdir(parents=True, exist_ok=True)
        sizes: dict[str, int] = json.loads(mark or "{}")
        for path in self._folder.glob(_FILES):
            if path.name in sizes:
                os.truncate(path, sizes[path.name])
            else:
                path.unlink()
        self._writer = EventFileWriter(str(self._folder), filename_suffix=_SUFFIX)
        if not sizes:
            self._text("config", _table(["field", "value"], list(run.flat_config.items())), 0)
            about = [*run.text_facts.items(), ("tags", ", ".join(run.notes.tags))]
            self._text("run", _table(["", ""], about) + f"\n\n{run.notes.note}", 0)
        return Link(str(self._folder), path=str(self._folder))

    def send(self, rows: Sequence[Row], *, first: int, again: bool) -> str:
        for row in rows:
            step = row.step or 0
            for name, value in row.numbers.items():
                self._add(scalar_pb(name, value), step, row.time_s)
            for name, text in row.facts.items():
                self._text(f"run/{name}", text, step, row.time_s)
            if row.samples is not None:
                self._text(
                    "samples", _table(row.samples.columns, row.samples.rows), step, row.time_s
                )
            if row.output is not None:
                about = row.output.model_dump(mode="json", include={"path", "what", "size_bytes"})
                digests = [(file.name, file.sha256) for file in row.output.files]
                text = _table(["", ""], [*about.items(), *digests])
                self._text(f"output/{row.output.what}", text, step, row.time_s)
        try:
            self._writer.flush()
        except OSError:
            with suppress(Exception):
                self._writer.close()
            raise
        files = {path.name: path.stat().st_size for path in self._folder.glob(_FILES)}
        return json.dumps(files)

    def _text(self, tag: str, text: str, step: int, time_s: float | None = None) -> None:
        self._add(text_pb(tag, text), step, time_s)

    def _add(self, summary: Any, step: int, time_s: float | None) -> None:
        self._writer.add_event(Event(summary=summary, step=step, wall_time=time_s or time.time()))

    def close(self, state: str) -> str:
        self._writer.close()
        return ""


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown, which TensorBoard shows as one."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
