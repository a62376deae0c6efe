"""MLflow: a run of an experiment, by MLflow's own client."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from llmops_kernel.errors import TrackerError
from llmops_kernel.metrics.events import OutputEvent
from llmops_kernel.trackers.rows import Row
from llmops_kernel.trackers.tracker import Link, TrackedRun, without_credentials

_PATIENCE: Final = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
}
"""Of the client, unless set: its own retries would take minutes, and we try again ourselves."""
_MOST_METRICS, _MOST_PARAMS, _MOST_TAGS = 1000, 100, 100
"""Of one request to a server."""
_MOST_VALUE = 5000
_RUN_ID = "llmops.run_id"
_STATUS: Final = {"SUCCEEDED": "FINISHED", "FAILED": "FAILED", "STOPPED": "KILLED"}
_NAME = re.compile(r"[^\w\-./ :]")


class MlflowTracker:
    """Numbers as metrics, config as params, facts as tags, samples and output as artifacts."""

    def open(self, run: TrackedRun, *, known: str, mark: str, warn: Callable[[str], None]) -> Link:
        for name, value in _PATIENCE.items():
            os.environ.setdefault(name, value)
        self._run, self._warn = run, warn
        self._seen: dict[str, set[tuple[int, int, str]]] = {}
        self._end_ms: int | None = None
        uri = self._uri()
        self._client = MlflowClient(tracking_uri=uri)
        experiment = self._experiment(uri)
        existing = known or self._find(experiment)
        tags = {f"llmops.{name}": text[:_MOST_VALUE] for name, text in run.text_facts.items()}
        tags |= {tag: "true" for tag in run.notes.tags}
        if run.notes.note:
            tags["mlflow.note.content"] = run.notes.note[:_MOST_VALUE]
        if existing:
            self._id = existing
            self._client.update_run(self._id, status="RUNNING")
        else:
            tags["mlflow.user"] = run.facts.get("user", "")
            name = run.notes.title or run.run_id
            created = self._client.create_run(experiment, run_name=name, tags={_RUN_ID: run.run_id})
            self._id = created.info.run_id
        self._tag(tags)
        params = [Param(_key(k), v[:_MOST_VALUE]) for k, v in run.flat_config.items()]
        for part in _parts(params, _MOST_PARAMS):
            self._client.log_batch(self._id, params=part)
        page = f"{uri.rstrip('/')}/#/experiments/{experiment}/runs/{self._id}"
        is_page = uri.startswith(("http://", "https://"))
        return Link(
            self._id,
            url=without_credentials(page) if is_page else "",
            path="" if is_page else uri,
            is_new=not existing,
        )

    def _uri(self) -> str:
        uri = self._run.settings.mlflow_uri or os.environ.get("MLFLOW_TRACKING_URI")
        if uri:
            return uri
        if self._run.home is None:
            raise TrackerError(
                "No address of an MLflow server is set",
                remedy="set MLFLOW_TRACKING_URI in the cluster template, or tracking.mlflow_uri",
            )
        folder = self._run.home / "trackers"
        folder.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{folder / 'mlflow.db'}"

    def _experiment(self, uri: str) -> str:
        if number := os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return number
        name = self._run.project("MLFLOW_EXPERIMENT_NAME")
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            # Without a server the client's default is a folder of the process's current one.
            is_file = uri.startswith("sqlite:///")
            folder = Path(uri.removeprefix("sqlite:///")).parent / "mlflow-artifacts"
            try:
                return str(
                    self._client.create_experiment(
                        name, artifact_location=folder.as_uri() if is_file else None
                    )
                )
            except MlflowException:
                experiment = self._client.get_experiment_by_name(name)  # Made by another run.
                if experiment is None:
                    raise
        if experiment.lifecycle_stage != "active":
            raise TrackerError(
                f"The MLflow experiment {name!r} is deleted",
                remedy="restore it, or name another one in tracking.project",
            )
        return str(experiment.experiment_id)

    def _find(self, experiment: str) -> str:
        """Return the run that an earlier process has made; empty if there is none."""
        query = f"tags.`{_RUN_ID}` = '{self._run.run_id}'"
        existing = self._client.search_runs([experiment], query, max_results=1)
        return str(existing[0].info.run_id) if existing else ""

    def send(self, rows: Sequence[Row], *, first: int, again: bool) -> str:
        metrics = [
            Metric(_key(name), value, int(row.time_s * 1000), row.step or 0)
            for row in rows
            for name, value in row.numbers.items()
        ]
        if again:
            metrics = [
                metric for metric in metrics if _stamp(metric) not in self._known(metric.key)
            ]
        else:
            self._seen.clear()
        for part in _parts(metrics, _MOST_METRICS):
            self._client.log_batch(self._id, metrics=part)
        self._tag({f"llmops.{name}": text for row in rows for name, text in row.facts.items()})
        for row in rows:
            self._files(row)
            if row.state:
                self._end_ms = int(row.time_s * 1000)
        return ""

    def _files(self, row: Row) -> None:
        """Store samples and output; the store of files may be down or closed to us on its own."""
        try:
            if row.samples is not None:
                table = {"columns": row.samples.columns, "data": row.samples.rows}
                self._client.log_dict(self._id, table, f"samples/step-{row.step or 0:08d}.json")
            if row.output is not None:
                self._log_output(row.output)
        except Exception as error:
            what = "samples" if row.output is None else "the output"
            self._warn(f"{what} could not be stored: {type(error).__name__}: {error}")

    def _known(self, key: str) -> set[tuple[int, int, str]]:
        """Return the points that the server has of a metric."""
        if key not in self._seen:
            history = self._client.get_metric_history(self._id, key)
            self._seen[key] = {_stamp(metric) for metric in history}
        return self._seen[key]

    def _tag(self, tags: dict[str, str]) -> None:
        for part in _parts([RunTag(_key(k), v[:_MOST_VALUE]) for k, v in tags.items()], _MOST_TAGS):
            self._client.log_batch(self._id, tags=part)

    def _log_output(self, output: OutputEvent) -> None:
        """Upload a small output, name a large one; make a version of the run's registered model."""
        files = self._run.files_of(output)
        about = output.model_dump(mode="json", include={"path", "what", "size_bytes", "files"})
        self._client.log_dict(self._id, about, f"{output.what}.json")
        source = output.path if "://" in output.path else ""
        if files is not None:
            self._client.log_artifacts(self._id, str(files), output.what)
            source = f"runs:/{self._id}/{output.what}"
        if source and output.what != "scores":
            self._add_version(source, output)

    def _add_version(self, source: str, output: OutputEvent) -> None:
        client, name = self._client, self._run.name
        try:
            client.create_registered_model(name)
        except MlflowException:
            client.get_registered_model(name)  # It exists already, else this says why not.
        versions = client.search_model_versions(f"name = '{name}' and run_id = '{self._id}'")
        if all(version.tags.get("llmops.path") != output.path for version in versions):
            tags = {_RUN_ID: self._run.run_id, "llmops.path": output.path}
            client.create_model_version(name, source, run_id=self._id, tags=tags)

    def close(self, state: str) -> str:
        if state:
            self._client.set_terminated(self._id, _STATUS[state], end_time=self._end_ms)
        return ""


def _key(name: str) -> str:
    return _NAME.sub("_", name)[:250]


def _stamp(metric: Metric) -> tuple[int, int, str]:
    value = "nan" if math.isnan(metric.value) else ""
    return metric.step, metric.timestamp, value


def _parts(items: Sequence[Any], most: int) -> Iterator[list[Any]]:
    rest = iter(items)
    while part := list(islice(rest, most)):
        yield part
