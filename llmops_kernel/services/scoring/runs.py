"""Finds the outputs of scoring runs: compares two, and gives the metrics of one with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llmops_kernel.errors import ComparisonError
from llmops_kernel.kinds.registry import view_of
from llmops_kernel.metrics.bootstrap import mean_difference
from llmops_kernel.services.scoring.compare import OutputComparison
from llmops_kernel.services.scoring.join import OWN_COLUMNS
from llmops_kernel.services.scoring.output import METRIC_PREFIX, ScoredOutput
from llmops_kernel.store.outputs import check_reported
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore


def compare_runs(store: RunStore, before: str, after: str) -> OutputComparison:
    """Compare the outputs of two scoring runs row by row. Raises ComparisonError."""
    records = store.record(before), store.record(after)
    keys = [str(_section(record, "input").get("key") or "") for record in records]
    if keys[0] != keys[1]:
        descriptions = [repr(key) if key else "the number of the row" for key in keys]
        raise ComparisonError(
            f"{before} identifies its rows by {descriptions[0]}, and {after} by {descriptions[1]}.",
            remedy="set input.key to the same column in both, and score again",
        )
    grades = _common_grades(*records)
    first, second = (
        ScoredOutput(output_url(store, record), name=record.run_id, grades=grades)
        for record in records
    )
    return OutputComparison(first, second, key=_column(keys[0]))


@dataclass(frozen=True, kw_only=True)
class MeasuredScore:
    """A metric of a scoring, over the rows that have it."""

    value: float | None
    low: float | None = None
    """Ends of the 95 % interval; None for a metric that is no mean of rows."""
    high: float | None = None
    rows: int | None = None


def scores_of(store: RunStore, record: RunRecord) -> dict[str, MeasuredScore]:
    """Return the metrics of a scoring by name, with bootstrap intervals over its rows.

    Raises ComparisonError while the scoring has not finished, MissingDependencyError.
    """
    output = ScoredOutput(output_url(store, record), name=record.run_id)
    columns = sorted(name for name in output.columns if name.startswith(METRIC_PREFIX))
    tables = list(output.read(columns)) if columns else []
    scores = {name: MeasuredScore(value=value) for name, value in output.totals.items()}
    for column in columns:
        name = column.removeprefix(METRIC_PREFIX)
        parts = [np.asarray(t.column(column).to_pylist(), dtype=np.float64) for t in tables]
        values = np.concatenate(parts)
        values = values[np.isfinite(values)]
        interval = mean_difference(np.zeros_like(values), values)
        total = output.totals.get(name)
        if interval and (total is None or math.isclose(total, interval.value, rel_tol=1e-6)):
            scores[name] = MeasuredScore(
                value=interval.value, low=interval.low, high=interval.high, rows=len(values)
            )
    return scores


def output_url(store: RunStore, record: RunRecord) -> str:
    """Return the folder or URL of a run's output: as the run reported it, else as configured.

    The run's own folder comes first if the output was copied into it from the cluster. Raises
    RunStateError for a URL that only the run's journal names.
    """
    local_output = store.folder(record.run_id).output
    reported = [event.path for event in view_of(store, record.run_id).outputs]
    configured = str(_section(record, "output").get("url") or "")
    if configured and "://" not in configured:
        configured = str(Path(record.workspace_root) / configured)
    for url in (*reversed(reported), configured):
        if url and ("://" in url or Path(url).is_dir()):
            check_reported(url, record, store.attempts(record.run_id))
            return url
    if local_output.is_dir() or not (reported or configured):
        return str(local_output)
    return reported[-1] if reported else configured


def _common_grades(before: RunRecord, after: RunRecord) -> tuple[str, ...]:
    """Return the grades of the judge of both; those of another rubric or model say nothing."""
    judges = [_section(record, "evaluation").get("judge") for record in (before, after)]
    if judges[0] != judges[1] or not isinstance(judges[0], Mapping) or not judges[0].get("model"):
        return ()
    return tuple(judges[0].get("choices") or ())


def _column(key: str) -> str:
    """Return the output's column: one of the input with the name of an own one is renamed."""
    is_reserved = key in OWN_COLUMNS or key.startswith(METRIC_PREFIX)
    return f"input_{key}" if is_reserved else key


def _section(record: RunRecord, name: str) -> Mapping[str, Any]:
    section = record.config.get(name)
    return section if isinstance(section, Mapping) else {}
