"""The metrics of the whole table, with those of the user's `compute_metrics`."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.driver.hooks import load_functions
from llmops_kernel.errors import HookError
from llmops_kernel.score.evaluate.hooks import compute_metrics
from llmops_kernel.score.evaluate.judge import Grades
from llmops_kernel.score.evaluate.totals import Totals
from llmops_kernel.score.output.sink import Sink
from llmops_kernel.score.output.table import OutputColumns
from llmops_kernel.score.scorer import HOOKS

Warning_ = tuple[str, str]


def final_metrics(
    config: ScoreConfig, totals: Totals, sink: Sink, columns: OutputColumns
) -> tuple[dict[str, float], Warning_ | None]:
    """Return the metrics by name, and a warning where the user's hook gave none."""
    metrics = totals.metrics()
    file = config.hooks.file
    hook = load_functions(Path(file), HOOKS)["compute_metrics"] if file else None
    scored = totals.num_rows - totals.num_errors
    if hook is None or not scored:
        return metrics, None
    try:
        # A metric of both hooks is the same number twice: that of all rows is kept.
        hook_metrics = compute_metrics(hook, _rows(sink, columns), num_rows=scored)
    except HookError as error:
        return metrics, (error.message, error.remedy)
    metrics |= {name: value for name, value in hook_metrics.values.items() if value is not None}
    return metrics, (hook_metrics.warning, "") if hook_metrics.warning else None


def _rows(
    sink: Sink, columns: OutputColumns
) -> Iterator[tuple[str, str | None, Mapping[str, Any]]]:
    """Yield (answer, reference, row of the input) of all rows without an error, in order."""
    import pyarrow.parquet as pq

    for name in sorted(sink.parts()):
        data = sink.read(name)
        for row in pq.read_table(io.BytesIO(data or b"")).to_pylist():
            if row["error"] is None and row["output"] is not None:
                yield row["output"], row["reference"], columns.input_of(row)


def grades(config: ScoreConfig, sink: Sink) -> Grades:
    """Count the judge's grades in its output."""
    import pyarrow.parquet as pq

    totals = Grades(config.evaluation.judge.choices)
    for name in sorted(sink.parts()):
        table = pq.read_table(io.BytesIO(sink.read(name) or b""), columns=["label"])
        totals.add(table["label"].to_pylist())
    return totals
