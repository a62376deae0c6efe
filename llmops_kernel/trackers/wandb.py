"""Weights & Biases: a run of a project, by W&B's own client; online or offline."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import wandb

from llmops_kernel.metrics.events import OutputEvent
from llmops_kernel.trackers.rows import Row
from llmops_kernel.trackers.tracker import Link, TrackedRun

_EXIT: Final = {"SUCCEEDED": 0, "FAILED": 1, "STOPPED": 255}
"""W&B shows these as finished, failed and killed."""
_INIT_S: Final = 45.0
_NAME = re.compile(r"[^\w.-]")


class WandbTracker:
    """Numbers as history, whose own step is the row's number; config as config, facts too.

    The client writes a file of its own, and uploads it in the background. How many rows the server
    has is asked when a session begins: what a killed one had not uploaded is sent then. Offline a
    session is a folder, and that of a killed one is written once more.
    """

    def open(self, run: TrackedRun, *, known: str, mark: str, warn: Callable[[str], None]) -> Link:
        self._tracked, self._warn = run, warn
        folder = Path(os.environ.get("WANDB_DIR") or run.folder)
        folder.mkdir(parents=True, exist_ok=True)
        before = json.loads(mark or "{}")
        self._sessions: list[str] = before.get("sessions", [])
        for path in (folder / "wandb").glob(f"offline-run-*-{run.run_id}"):
            if path.name not in self._sessions:  # Of a process that was killed: written again.
                shutil.rmtree(path)
        self._run: Any = wandb.init(
            project=run.project("WANDB_PROJECT"),
            entity=run.settings.entity,
            id=run.run_id,
            name=run.notes.title or run.run_id,
            group=run.name,
            job_type=run.kind,
            tags=list(run.notes.tags) or None,
            notes=run.notes.note or None,
            config={**run.config, "llmops": run.text_facts},
            dir=str(folder),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                disable_job_creation=True,
                init_timeout=_INIT_S,
                silent=True,
                x_disable_meta=True,
                x_disable_stats=True,
            ),
        )
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")
        self._is_offline = is_offline = bool(self._run.offline)
        self._num_rows = before.get("rows", 0) if is_offline else int(self._run.starting_step)
        return Link(
            run.run_id,
            url="" if is_offline else str(self._run.url or ""),
            path=str(folder / "wandb") if is_offline else "",
            rows=self._num_rows,
        )

    def send(self, rows: Sequence[Row], *, first: int, again: bool) -> str:
        number = first
        for row in rows:
            if row.has_place:
                numbers: dict[str, Any] = {
                    "step": row.step,
                    "_timestamp": row.time_s,
                    **row.numbers,
                }
                if row.samples is not None:
                    table = wandb.Table(columns=row.samples.columns, data=row.samples.rows)
                    numbers["samples"] = table
                self._run.log(numbers, step=number, commit=True)
                number += 1
            if row.facts:
                facts = {f"llmops.{name}": text for name, text in row.facts.items()}
                self._run.config.update(facts, allow_val_change=True)
            if row.output is not None:
                self._log_output(row.output)
        self._num_rows = number
        return ""

    def _log_output(self, output: OutputEvent) -> None:
        """Add a version: of the files if they are small, else of a reference to them."""
        name = _NAME.sub("-", f"{self._tracked.name}-{output.what}")
        digests = {file.name: file.sha256 for file in output.files}
        about = {"run_id": self._tracked.run_id, "path": output.path, "sha256": digests}
        artifact = wandb.Artifact(name, type=output.what, metadata=about)
        files = self._tracked.files_of(output)
        if files is not None:
            artifact.add_dir(str(files))
        elif "://" in output.path:
            artifact.add_reference(output.path, checksum=False)
        else:
            with artifact.new_file("output.json") as file:
                file.write(output.model_dump_json(include={"path", "what", "size_bytes", "files"}))
        self._run.log_artifact(artifact)

    def close(self, state: str) -> str:
        self._run.finish(exit_code=_EXIT.get(state, 0))
        if not self._is_offline:
            return ""
        sessions = [*self._sessions, Path(self._run.dir).parent.name]
        return json.dumps({"rows": self._num_rows, "sessions": sessions})
