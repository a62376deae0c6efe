"""Comet: an experiment of a project, by Comet's own client; online or offline."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import comet_ml

from llmops_kernel.metrics.events import OutputEvent
from llmops_kernel.trackers.rows import Row
from llmops_kernel.trackers.tracker import Link, TrackedRun

_FLUSH_S: Final = 30
_OFF: Final = {"0", "false", "no"}


class CometTracker:
    """Numbers as metrics, config as parameters, facts as others, samples as tables.

    Online each batch is flushed, and a batch in doubt is compared with what the server has. Offline
    a session is an archive that is made at its end: what a killed one had is written once more.
    """

    def open(self, run: TrackedRun, *, known: str, mark: str, warn: Callable[[str], None]) -> Link:
        self._tracked, self._warn = run, warn
        self._known: set[tuple[str, int]] | None = None
        self._is_online = os.environ.get("COMET_START_ONLINE", "").lower() not in _OFF
        # 32 to 50 letters and digits; made of the run's id, so that no second one can come to be.
        self._key = hashlib.sha256(run.run_id.encode()).hexdigest()[:40]
        self._folder = folder = Path(
            os.environ.get("COMET_OFFLINE_DIRECTORY") or run.folder / "comet"
        )
        folder.mkdir(parents=True, exist_ok=True)
        before = json.loads(mark or "{}")
        for path in () if self._is_online else self._archives():
            if path.name not in before.get("archives", ()):
                path.unlink()  # Of a process that was killed: written again.
        experiment: Any = comet_ml.start(
            project_name=run.project("COMET_PROJECT_NAME"),
            workspace=run.settings.entity,
            experiment_key=self._key,
            mode="get_or_create",
            online=self._is_online,
            experiment_config=self._config(),
        )
        self._experiment = experiment
        experiment.log_parameters(run.flat_config)
        experiment.log_others({f"llmops.{k}": text for k, text in run.text_facts.items()})
        if run.notes.note:
            experiment.log_other("note", run.notes.note)
        self._num_rows = before.get("rows", 0)
        return Link(
            str(experiment.get_key()),
            url=str(experiment.url or "") if self._is_online else "",
            path="" if self._is_online else str(folder),
            rows=None if self._is_online else self._num_rows,
            is_new=not self._is_online,  # Another machine may have begun it.
        )

    def _config(self) -> Any:
        """Return what the client collects by itself: nothing, as this is not the run's process."""
        run = self._tracked
        return comet_ml.ExperimentConfig(
            auto_log_co2=False,
            auto_metric_logging=False,
            auto_output_logging=False,
            auto_param_logging=False,
            display_summary_level=0,
            log_code=False,
            log_env_details=False,
            log_git_metadata=False,
            log_git_patch=False,
            log_graph=False,
            name=run.notes.title or run.run_id,
            offline_directory=str(self._folder),
            parse_args=False,
            tags=[*run.notes.tags, run.kind],
        )

    def send(self, rows: Sequence[Row], *, first: int, again: bool) -> str:
        known = self._there() if again and self._is_online else set()
        for row in rows:
            step = row.step or 0
            numbers = {k: v for k, v in row.numbers.items() if (k, step) not in known}
            if numbers:
                self._experiment.log_metrics(numbers, step=step)
            if row.facts:
                facts = {f"llmops.{name}": text for name, text in row.facts.items()}
                self._experiment.log_others(facts)
            if row.samples is not None:
                name = f"samples-step-{step:08d}.csv"
                self._experiment.log_table(
                    name, tabular_data=row.samples.rows, headers=row.samples.columns
                )
            if row.output is not None:
                self._log_output(row.output)
            if row.has_place:
                first += 1
        self._num_rows = first
        # The client keeps and repeats what its server has not taken: to send it again would double
        # it. A process that is killed meanwhile compares with the server when it begins again.
        has_warned = False
        while self._is_online and not self._experiment.flush(_FLUSH_S):
            if not has_warned:
                has_warned = True
                self._warn(f"its server has not taken the last rows within {_FLUSH_S} s")
        return ""

    def _there(self) -> set[tuple[str, int]]:
        """Return name and step of each number that the server has."""
        if self._known is None:
            there = comet_ml.APIExperiment(previous_experiment=self._experiment.get_key())
            points = there.get_metrics()
            self._known = {(str(p["metricName"]), int(p["step"] or 0)) for p in points}
        return self._known

    def _log_output(self, output: OutputEvent) -> None:
        """Add a version: of the files if they are small, else of a reference to them.

        Offline the client has models, but no artifacts.
        """
        digests = {file.name: file.sha256 for file in output.files}
        about = {"run_id": self._tracked.run_id, "path": output.path, "sha256": json.dumps(digests)}
        name = f"{self._tracked.name}-{output.what}"
        files = self._tracked.files_of(output)
        if not self._is_online:
            self._experiment.log_others({f"{output.what}.{k}": text for k, text in about.items()})
            if files is not None:
                self._experiment.log_model(name, str(files), metadata=about)
            return
        artifact = comet_ml.Artifact(name, artifact_type=output.what, metadata=about)
        if files is not None:
            artifact.add(str(files))
        elif "://" in output.path:
            artifact.add_remote(output.path, logical_path=output.what, sync_mode=False)
        else:
            text = output.model_dump_json(include={"path", "what", "size_bytes", "files"})
            file = self._tracked.folder / "comet-output.json"
            file.write_text(text)
            artifact.add(str(file), logical_path="output.json")
        self._experiment.log_artifact(artifact)

    def close(self, state: str) -> str:
        self._experiment.end()
        if self._is_online:
            return ""
        archives = [path.name for path in self._archives()]
        return json.dumps({"rows": self._num_rows, "archives": archives})

    def _archives(self) -> list[Path]:
        return sorted(self._folder.glob(f"{self._key}*.zip"))
