"""Trackio: a run of a project, by Trackio's own client; on this machine, a server or a Space."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import trackio
from trackio.sqlite_storage import SQLiteStorage

from llmops_kernel.errors import TrackerError
from llmops_kernel.metrics.events import OutputEvent
from llmops_kernel.trackers.rows import Row
from llmops_kernel.trackers.tracker import Link, TrackedRun

_WRITE_S: Final = 30.0
_POLL_S: Final = 0.1


class TrackioTracker:
    """Numbers as logs of a step, config and facts as config, samples as tables.

    Its client writes in the background. On this machine the rows that its database has are counted;
    a server or a Space cannot be asked, and may have rows of a killed process twice.
    """

    def open(self, run: TrackedRun, *, known: str, mark: str, warn: Callable[[str], None]) -> Link:
        self._tracked = run
        remote = os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL") or ""
        self._is_local = not remote
        self._project = run.project("TRACKIO_PROJECT")
        self._run: Any = trackio.init(
            project=self._project,
            name=run.run_id,
            group=run.name,
            config={**run.flat_config, **run.text_facts, "tags": ", ".join(run.notes.tags)},
            resume="allow",
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
        )
        is_page = remote.startswith(("http://", "https://"))
        page = remote.partition("?")[0] if is_page else f"https://huggingface.co/spaces/{remote}"
        return Link(
            run.run_id,
            url=page if remote else "",
            path="" if remote else str(trackio.utils.TRACKIO_DIR),
            rows=self._count() if self._is_local else None,
            is_new=self._is_local,
        )

    def _count(self) -> int:
        return int(SQLiteStorage.get_log_count(self._project, self._tracked.run_id))

    def send(self, rows: Sequence[Row], *, first: int, again: bool) -> str:
        number = first
        for row in rows:
            if row.has_place:
                numbers: dict[str, Any] = dict(row.numbers)
                if row.samples is not None:
                    columns, data = row.samples.columns, row.samples.rows
                    numbers["samples"] = trackio.Table(columns=columns, data=data)
                self._run.log(numbers, step=row.step)
                number += 1
            self._run.config.update({f"llmops.{name}": text for name, text in row.facts.items()})
            if row.output is not None:
                self._log_output(row.output)
        deadline_s = time.monotonic() + _WRITE_S
        while self._is_local and self._count() < number:
            if time.monotonic() > deadline_s:
                raise TrackerError(
                    f"Trackio has not written the last rows within {_WRITE_S:.0f} s",
                    remedy=f"check that {trackio.utils.TRACKIO_DIR} can be written",
                )
            time.sleep(_POLL_S)
        return ""

    def _log_output(self, output: OutputEvent) -> None:
        """Add a version: of the files if they are small, else of a reference to them."""
        digests = {file.name: file.sha256 for file in output.files}
        about = {"run_id": self._tracked.run_id, "path": output.path, "sha256": digests}
        name = f"{self._tracked.name}-{output.what}"
        artifact = trackio.Artifact(name, type=output.what, metadata=about)
        files = self._tracked.files_of(output)
        if files is not None:
            artifact.add_dir(str(files))
        else:
            artifact.add_reference(output.path, checksum=False)
        self._run.log_artifact(artifact)

    def close(self, state: str) -> str:
        trackio.finish()
        return ""
