"""Runs once more from their records: what differs before it starts, and the first number after."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmops_kernel.errors import RunFailedError, RunStateError
from llmops_kernel.hardware.precision import cpu_name
from llmops_kernel.jobs.control import kept_packages, reproduce_run
from llmops_kernel.jobs.submit import client_versions
from llmops_kernel.kinds.kind import load_attribute
from llmops_kernel.kinds.reading import from_record
from llmops_kernel.kinds.registry import kind_named, view_of
from llmops_kernel.metrics.events import StartEvent
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.services.scoring.output import ScoredOutput
from llmops_kernel.services.scoring.runs import output_url
from llmops_kernel.store.diff import differences, is_code, value_text
from llmops_kernel.store.files import find
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.package.content import data_content
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.reproduction import (
    Compared,
    Difference,
    Facts,
    Reason,
    Reproduction,
    Value,
    changes,
    compare,
    curve_of,
    is_compared,
    reasons,
    unknown,
)

if TYPE_CHECKING:
    import pyarrow as pa

_NOT_OF_NUMBERS = ("name", "output.url", "report_to", "profile", "monitor", "tracking")
"""Beginnings of config fields that decide no number."""


@dataclass(frozen=True)
class Recorded:
    """A run as the store has it."""

    record: RunRecord
    view: RunView
    resumed_at: tuple[int, ...]
    """Last steps before each resume from a checkpoint."""

    @property
    def is_score(self) -> bool:
        return bool(kind_named(self.record.kind).output_comparison)

    @property
    def id(self) -> str:
        return self.record.run_id


def recorded(store: RunStore, run_id: str) -> Recorded:
    """Return a run that can be compared.

    Raises RunStateError for one that runs, that has no numbers, or whose kind makes no steps and
    no rows.
    """
    record, view = store.record(run_id), view_of(store, run_id)
    kind = kind_named(record.kind)
    if not (isinstance(view, TrainingView) or kind.output_comparison):
        raise RunStateError(
            f"Run {run_id} is a {kind.name} run: it makes no steps and scores no rows, so there is"
            " nothing to compare",
            remedy="reproduce a training, a script or a score run",
        )
    if not view.is_terminal:
        raise RunStateError(
            f"Run {run_id} is {view.state}; only a run that has ended can be reproduced",
            remedy=f"wait for it: llmops wait {run_id}",
        )
    if kind.output_comparison and view.state != "SUCCEEDED":
        raise RunStateError(
            f"Run {run_id} is {view.state}: its rows are not all scored",
            remedy=f"let it score the others first: llmops retry {run_id}",
        )
    if isinstance(view, TrainingView) and not view.steps:
        how = "; a script reports them by track.step" if kind.programs else ""
        raise RunStateError(
            f"Run {run_id} has no step that could be compared (it is {view.state}{how})",
            remedy=f"`llmops logs {run_id}` shows why; reproduce a run that has made steps",
        )
    starts = (event for event in store.events(run_id) if isinstance(event, StartEvent))
    firsts = {event.first_step - 1 for event in starts if event.first_step > 1}
    return Recorded(record, view, tuple(sorted(firsts)))


# --- Before it starts ---


def check(store: RunStore, run_id: str) -> Recorded:
    """Return the run if it can be submitted again.

    Raises RunStateError also where a data file of it is gone, SubmissionError without its packages.
    """
    run = recorded(store, run_id)
    kept_packages(store, run.record)
    if gone := [name for name, content in _data_now(run).items() if content == ""]:
        raise RunStateError(
            f"Data of run {run_id} is not there any more: {', '.join(gone)}",
            remedy="put it back; or compare with a run that was submitted while it was there:"
            f" llmops reproduce {run_id} --against RUN",
        )
    return run


def changed_since(run: Recorded, cluster: Cluster) -> tuple[Reason, ...]:
    """Return what differs between the run and today, as far as this machine sees it.

    What only the workers know is compared when the reproduction has ended.
    """
    info, record = cluster.info, run.record
    sees_disk = cluster.provider.shares_disk
    inputs = run.view.inputs
    hardware = {"num_cpus": info.num_cpus, "num_gpus": info.num_gpus, "num_nodes": info.num_nodes}
    before: dict[str, dict[str, str | None]] = {
        "versions": dict(record.versions),
        "device": {name: _text(record.hardware.get(name)) for name in hardware},
        "attempts": {"attempts": _attempts(run)},
    }
    after: dict[str, dict[str, str | None]] = {
        "versions": dict(client_versions()),
        "device": {name: _text(value) for name, value in hardware.items()},
        "attempts": {"attempts": _NONE_RESUMED},
    }
    if sees_disk and inputs is not None:
        data_now = _data_now(run)
        before["data"] = {name: inputs.data[name] for name in data_now}
        after["data"] = data_now
    if sees_disk and inputs is not None and record.host and "cpu" in inputs.machine:
        before["device"]["cpu"], after["device"]["cpu"] = inputs.machine["cpu"], cpu_name()
    elif record.host != socket.gethostname():
        before["device"]["host"], after["device"]["host"] = record.host, socket.gethostname()
    return changes(before, after)


def _data_now(run: Recorded) -> dict[str, str | None]:
    """Return the content of the data files that are not in the package; empty for one that is gone.

    Files that this machine has never seen, such as those of a cluster's own disk, are left out.
    """
    inputs, root = run.view.inputs, Path(run.record.workspace_root)
    if inputs is None or run.record.host != socket.gethostname():
        return {}
    outside = [
        name
        for name, content in inputs.data.items()
        if content is not None and name not in run.record.files
    ]
    present = [name for name in outside if find(name, [root]) is not None]
    return dict.fromkeys(outside, "") | data_content(present, [root])


def begin(cluster: Cluster, run: Recorded, *, progress: Progress | None = None) -> RunRecord:
    """Submit the run again from its record, and return as soon as Ray has accepted the job.

    Raises as a submission does.
    """
    kind = kind_named(run.record.kind)
    if kind.prepare:
        config = from_record(kind, run.record.config, {})
        load_attribute(kind.prepare)(config, cluster.provider, progress=progress)
    info = cluster.ready_info(progress=progress)
    with cluster.client(progress=progress) as client:
        return reproduce_run(cluster.backend.store, run.id, cluster=info, client=client)


# --- After it has ended ---


def result(store: RunStore, run_id: str, by: str) -> Reproduction:
    """Compare a run with its reproduction, or with any other run of its kind.

    Raises RunStateError where one of them cannot be compared, RunFailedError for a reproduction
    that failed where the run did not, ComparisonError for outputs that cannot be read.
    """
    before, after = recorded(store, run_id), recorded(store, by)
    if before.record.kind != after.record.kind:
        raise RunStateError(
            f"Run {run_id} is a {before.record.kind} run, and {by} a {after.record.kind} run",
            remedy="compare two runs of one kind",
        )
    states = [run.view.state for run in (before, after)]
    if states[0] == "SUCCEEDED" != states[1]:
        error = RunFailedError if states[1] == "FAILED" else RunStateError
        why = f": {after.view.message}" if after.view.message else ""
        raise error(
            f"Run {by} is {states[1]}{why}; run {run_id} has succeeded",
            remedy=after.view.remedy or f"reproduce it once more: llmops reproduce {run_id}",
        )
    compared = _rows(store, before, after) if before.is_score else _steps(before, after)
    first, second = _facts(before, after), _facts(after, before)
    resumed_at = (*before.resumed_at, *after.resumed_at)
    difference = compared.difference
    return Reproduction(
        run=run_id,
        by=by,
        unit="row" if before.is_score else "step",
        compared=compared,
        changes=changes(first, second),
        unknown=unknown(first, second),
        reasons=reasons(difference, first, second, resumed_at=resumed_at) if difference else (),
        notes=tuple(_notes(run) for run in (before, after) if run.view.state != "SUCCEEDED"),
    )


def _notes(run: Recorded) -> str:
    return f"{run.id} is {run.view.state}: compared up to its last step, {run.view.last_step}"


def _steps(before: Recorded, after: Recorded) -> Compared:
    curves = []
    for run in (before, after):
        assert isinstance(run.view, TrainingView)
        curves.append(curve_of(run.view.steps, run.view.evaluations))
    ended = [run.view.state == "SUCCEEDED" for run in (before, after)]
    return compare(curves[0], curves[1], ended=(ended[0], ended[1]))


# --- Facts that the numbers depend on ---


def _facts(run: Recorded, other: Recorded) -> Facts:
    """Return the facts of a run; of several sources the best one that the other run has as well."""
    record, inputs = run.record, run.view.inputs
    fields = {
        path: value_text(one)
        for path, one, _ in differences(record.config, other.record.config)
        if not path.startswith(_NOT_OF_NUMBERS)
    }
    data_names = {*(inputs.data if inputs else ()), *_named(record.config)}
    files: dict[str, dict[str, str | None]] = {"code": {}, "data": {}, "files": {}}
    for path, content in record.files.items():
        is_data = path in data_names
        files["data" if is_data else "code" if is_code(path) else "files"][path] = content
    if inputs is not None:
        files["data"] |= inputs.data
    level = next(
        number
        for number, pair in enumerate(zip(_environments(run), _environments(other), strict=True))
        if all(pair) or number == _LAST_LEVEL
    )
    versions, device = _environments(run)[level] or ({}, {})
    return {
        **files,
        "config": fields,
        "library": {"llmops_kernel": record.package_hash or None},
        "model": dict(inputs.model) if inputs else {},
        "workers": _workers(run.view),
        "versions": versions,
        "device": device,
        "attempts": {"attempts": _attempts(run)},
        "settings": _settings(run),
    }


_Environment = tuple[Mapping[str, str | None], Mapping[str, str | None]]
_LAST_LEVEL = 2
_NONE_RESUMED = "none resumed"


def _environments(run: Recorded) -> list[_Environment | None]:
    """Return (versions, device) as the run's inputs have them, its start, and its record."""
    inputs, start = run.view.inputs, _start(run.view)
    name = {"device": start.device} if start and start.device else {}
    machine = {k: v for k, v in inputs.machine.items() if k != "deterministic"} if inputs else {}
    by_inputs = (dict(inputs.versions), machine | name) if inputs and inputs.versions else None
    by_start = (dict(start.versions), name) if start and start.versions else None
    hardware = {key: _text(value) for key, value in run.record.hardware.items()}
    return [by_inputs, by_start, (dict(run.record.versions), hardware)]


def _start(view: RunView) -> StartEvent | None:
    return view.start if isinstance(view, TrainingView) else None


def _workers(view: RunView) -> dict[str, str | None]:
    start = _start(view)
    if start is None:
        return {}
    facts = {
        "workers": str(start.num_workers),
        "global batch size": _text(start.global_batch_size or None),
        "micro batch size": _text(start.micro_batch_size or None),
        "number format": start.dtype or None,
        "engine": start.engine or None,
    }
    for restart in view.restarts:
        facts |= {
            f"{path} after a restart": _text(value) for path, value in restart.changes.items()
        }
    return facts


def _attempts(run: Recorded) -> str:
    steps = ", ".join(f"{step:,}" for step in run.resumed_at)
    return f"resumed after step {steps}" if steps else _NONE_RESUMED


def _settings(run: Recorded) -> dict[str, str | None]:
    """Return the settings with which the same run may give other numbers."""
    inputs, engine = run.view.inputs, run.record.config.get("engine")
    machine = inputs.machine if inputs else {}
    facts: dict[str, str | None] = {}
    if "gpu" in machine and machine.get("deterministic") != "true":
        facts["PyTorch's deterministic algorithms"] = f"are off on {machine['gpu']}"
    if isinstance(engine, Mapping) and engine.get("type") == "vllm":
        facts["batches of vLLM"] = "depend on when rows arrive"
    return facts


def _named(config: Any) -> set[str]:
    """Return all texts of a config: a file among them is data that it reads, or its code."""
    if isinstance(config, str):
        return set() if config.endswith(".py") else {config}
    inner = config.values() if isinstance(config, Mapping) else config
    if not isinstance(config, Mapping | list | tuple):
        return set()
    return set().union(*(_named(value) for value in inner))


def _text(value: Any) -> str | None:
    return None if value is None else value_text(value)


# --- Rows of two score runs ---


def _rows(store: RunStore, before: Recorded, after: Recorded) -> Compared:
    first, second = (
        ScoredOutput(output_url(store, run.record), name=run.id) for run in (before, after)
    )
    columns = sorted(first.columns | second.columns)
    num_rows = 0
    for one, other in _aligned(first.read(columns), second.read(columns)):
        if not one.equals(other):  # NaN is not itself there: then row by row.
            compared = compare(_curve(one, num_rows), _curve(other, num_rows))
            if compared.difference is not None:
                return replace(compared, num_rows=num_rows + compared.num_rows)
        num_rows += one.num_rows
    if first.num_rows != second.num_rows:
        is_first = first.num_rows > second.num_rows
        difference = Difference(place=(num_rows, 0), only_in="before" if is_first else "after")
        return Compared(num_rows=num_rows, num_evaluations=0, difference=difference)
    totals = (
        {(num_rows, 1): {k: v for k, v in output.totals.items() if is_compared(k)}}
        for output in (first, second)
    )
    return replace(compare(*totals), num_rows=num_rows)


def _aligned(
    before: Iterator[pa.Table], after: Iterator[pa.Table]
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield slices of the same rows, however each output is divided into parts."""
    one, other = next(before, None), next(after, None)
    while one is not None and other is not None:
        count = min(one.num_rows, other.num_rows)
        if count:
            yield one.slice(0, count), other.slice(0, count)
        one = one.slice(count) if count < one.num_rows else next(before, None)
        other = other.slice(count) if count < other.num_rows else next(after, None)


def _curve(table: pa.Table, first: int) -> dict[tuple[int, int], dict[str, Value]]:
    rows: Sequence[Mapping[str, Any]] = table.to_pylist()
    return {
        (first + number, 0): {name: _plain(value) for name, value in row.items()}
        for number, row in enumerate(rows)
    }


def _plain(value: Any) -> Value:
    """Return a number or a text as it is, and a vector or a chat as JSON with all digits."""
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value, default=str, sort_keys=True)
