"""The driver of a score run: `python -m llmops_kernel.score.driver` as a Ray job."""

from __future__ import annotations

import hashlib
import io
import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.driver.hooks import load_functions
from llmops_kernel.driver.nodes import NodeHolds, this_node
from llmops_kernel.driver.report import DriverReport, failure_of
from llmops_kernel.driver.storage import open_bucket, ray_logs, run_folder
from llmops_kernel.driver.watch import RunWatch
from llmops_kernel.errors import HookError
from llmops_kernel.metrics.events import EndEvent, OutputEvent
from llmops_kernel.metrics.predictions import (
    Retrieval,
    f1_scores,
    means_of,
    pearson,
    retrievals,
    spearman,
)
from llmops_kernel.metrics.scores import CORPUS, FOLDER, NEAREST, RETRIEVAL, ROW
from llmops_kernel.score.evaluate.hooks import compute_metrics
from llmops_kernel.score.evaluate.judge import Grades, judge_config
from llmops_kernel.score.evaluate.row_scorer import Totals, labels_of, number_of
from llmops_kernel.score.evaluate.text_metrics import plain
from llmops_kernel.score.live import LiveReport
from llmops_kernel.score.output_table import OutputColumns
from llmops_kernel.score.scorer import HOOKS
from llmops_kernel.score.scoring import Scored, Scoring
from llmops_kernel.score.sink import METRICS, Sink, table_bytes
from llmops_kernel.store.package.assets import link_assets
from llmops_kernel.store.record import RunSpec

_RETRY = "`llmops retry` goes on where it was; `llmops logs` has the traceback"


class ScoreDriver:
    """Scores the table, has the answers graded where the config names a judge, and sums up."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._config = ScoreConfig.model_validate(spec.config)
        self._stop = threading.Event()
        self._report = DriverReport(spec, logs=ray_logs(Path.cwd()))
        self._watch = RunWatch(
            self._report.emit, spec, self._config.monitor, folder=run_folder(spec).root
        )
        self._holds = NodeHolds(self._report.emit, on_use=self._watch.use)

    def run(self) -> int:
        """Return the driver's exit status."""
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
        self._report.phases_so_far()
        import ray

        ray.init(log_to_driver=True, configure_logging=False)
        # Again: ray.init installs a handler that exits at once.
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
        self._holds.begin(this_node())
        self._watch.begin(node=this_node()[0])
        try:
            end = self._attempt()
        except Exception as error:
            end = self._report.failed([failure_of(error, remedy=_RETRY)])
        self._watch.end()
        status = self._report.end(end)
        ray.shutdown()
        return status

    def _attempt(self) -> EndEvent:
        link_assets(Path.cwd())
        self._report.phase("driver", "end")
        sink = self._sink()
        scored = self._scored(self._config, sink)
        if not scored.is_complete:
            return _stopped(scored, "rows are scored and written")
        judge: dict[str, float] = {}
        if self._config.evaluation.judge.model:
            judged = Sink(f"{sink.url}/{FOLDER}")
            config = judge_config(self._config, output=sink.url)
            graded = self._scored(config, judged, unit="graded rows")
            if not graded.is_complete:
                return _stopped(graded, "rows are graded; all are scored")
            judge = grades(self._config, judged).metrics()
        return self._finish(scored, sink, judge)

    def _scored(self, config: ScoreConfig, sink: Sink, *, unit: str = "rows") -> Scored:
        return Scoring(
            *(self._spec, config, sink),
            report=self._report,
            holds=self._holds,
            watch=self._watch,
            stop=self._stop,
            unit=unit,
        ).run()

    def _sink(self) -> Sink:
        url = self._config.output.url
        if not url:
            # A bucket: each node has a folder of its own, and scorers are on several.
            bucket = open_bucket(self._spec.run_id)
            folder = run_folder(self._spec).output
            return Sink(str(folder) if bucket is None else bucket.url_of(folder.name))
        if "://" in url or Path(url).is_absolute():
            return Sink(url)
        return Sink(str(Path(self._spec.workspace_root or Path.cwd()) / url))

    def _finish(self, scored: Scored, sink: Sink, judge: dict[str, float]) -> EndEvent:
        """Compute the metrics of the whole, mark the output complete, and say where it is."""
        self._report.phase("evaluate", "begin")
        ledger = scored.ledger
        totals = Totals()
        for result in ledger.finished:
            totals.merge(Totals.from_json(result.totals))
        metrics, warning = final_metrics(self._config, totals, sink, scored.columns)
        metrics |= judge
        if warning:
            self._report.warn(*warning)
        of_table, notes = table_metrics(self._config, sink)
        metrics |= of_table
        for note in notes:
            self._report.warn(*note)
        if totals.num_cut:
            self._report.warn(
                f"{totals.num_cut:,} of {totals.num_rows:,} rows have a text that is longer than"
                " the model reads, and was cut.",
                "split long texts into several rows; max_seq_length of the model's"
                " sentence_bert_config.json says how much it reads",
            )
        summary = {
            "rows": totals.num_rows,
            "errors": totals.num_errors,
            "cut": totals.num_cut,
            "metrics": metrics,
            "metric_rows": totals.rows_of(),
            "reliability": totals.reliability(),
            "prompt_tokens": sum(part.prompt_tokens for part in ledger.finished),
            "output_tokens": sum(part.output_tokens for part in ledger.finished),
        }
        sink.write(METRICS, json.dumps(summary, indent=2).encode())
        ledger.complete({"run": self._spec.run_id, "rows": totals.num_rows})
        LiveReport.evaluation(self._report, metrics, rows=totals.num_rows)
        self._report.phase("evaluate", "end")
        size = sum(part.num_bytes for part in ledger.finished)
        if self._config.output.url or "://" in sink.url:
            self._report.emit(OutputEvent(path=sink.url, what="scores", size_bytes=size))
        else:
            self._report.wrote(Path(sink.url), what="scores", size_bytes=size)
        message = ""
        if totals.num_errors:
            message = (
                f"{totals.num_errors:,} of {totals.num_rows:,} rows could not be scored; the column"
                " `error` says why."
            )
        return EndEvent(state="SUCCEEDED", message=message, last_step=totals.num_rows)


def _stopped(scored: Scored, unit: str) -> EndEvent:
    done = sum(result.rows for result in scored.ledger.finished)
    return EndEvent(
        state="STOPPED",
        message=f"Stopped; {done:,} of {scored.num_rows:,} {unit}.",
        remedy="`llmops retry` does the others",
        last_step=done,
    )


def main() -> None:
    spec = RunSpec.of_this_job()
    print(f"run {spec.run_id}, attempt {spec.attempt}", flush=True)
    if spec.has_packages:
        from llmops_kernel.driver.packages import prepare  # 7 ms that most runs need not wait for.

        prepare(spec)
    sys.exit(ScoreDriver(spec).run())


# --- The metrics of the whole table, with those of the user's `compute_metrics` ---


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
            if row["error"] is None and (row["output"] or row["embedding"]) is not None:
                yield row["output"] or "", row["reference"], columns.input_of(row)


# --- Metrics that only the whole table has ---


_MOST_BYTES = 2_000_000_000
"""Vectors that `retrieval` holds in memory."""
_MOST_NAMED = 12
"""Labels whose own F1 is shown."""


def table_metrics(config: ScoreConfig, sink: Sink) -> tuple[dict[str, float], list[Warning_]]:
    """Return the metrics that no row has alone, from the finished parts, and what to be told."""
    names = config.evaluation.metrics
    metrics: dict[str, float] = {}
    notes: list[Warning_] = []
    if "f1" in names:
        metrics |= _f1(config, sink)
    if {"pearson", "spearman"} & {*names}:
        columns = zip(*_numbers(sink), strict=True)
        pair = [np.array(column) for column in columns] or [np.empty(0), np.empty(0)]
        values = {"pearson": pearson(*pair), "spearman": spearman(*pair)}
        metrics |= {n: v for n, v in values.items() if n in names and v is not None}
    if "retrieval" in names:
        metrics |= means_of(_retrieval(config, sink, notes))
    return metrics, notes


def _retrieval(config: ScoreConfig, sink: Sink, notes: list[Warning_]) -> dict[str, Retrieval]:
    """Return how well each distinct prompt finds its references, and write that beside the rows."""
    queries: dict[str, int] = {}
    texts: dict[str, int] = {}
    vectors: tuple[list[Any], list[Any]] = ([], [])
    numbers: list[int] = []
    pairs: set[tuple[int, int]] = set()
    num_without = width = 0
    for table in _columns(sink, ROW, "prompt", "reference", "embedding", "reference_embedding"):
        whole = table.filter(table["reference_embedding"].is_valid())
        num_without += table.num_rows - whole.num_rows
        if not whole.num_rows:
            continue
        rows, prompts, references = (whole[n].to_pylist() for n in whole.column_names[:3])
        for group, values, kept, column in (
            (queries, prompts, vectors[0], "embedding"),
            (texts, references, vectors[1], "reference_embedding"),
        ):
            first = [n for n, text in enumerate(values) if _is_new(group, text)]
            matrix = whole[column].combine_chunks().flatten().to_numpy()
            width = len(matrix) // len(values)
            kept.append(matrix.reshape(-1, width)[first])
            numbers += [rows[n] for n in first] if group is queries else []
        pairs |= {(queries[a], texts[b]) for a, b in zip(prompts, references, strict=True)}
        if (len(queries) + len(texts)) * width * 4 > _MOST_BYTES:
            notes.append(
                (
                    "The metric retrieval is left out: its vectors need more than"
                    f" {_MOST_BYTES / 1e9:g} GB of the driver's memory.",
                    "score fewer rows (input.limit), or compute it from the output's columns",
                )
            )
            return {}
    if num_without:
        notes.append((f"{num_without:,} rows have no reference: retrieval leaves them out.", ""))
    if wide := [size for size in config.evaluation.dimensions if size >= width]:
        listed = ", ".join(map(str, wide))
        notes.append((f"evaluation.dimensions {listed}: vectors have {width} numbers.", ""))
    if not pairs:
        return {}
    left, right = (np.concatenate(kept) for kept in vectors)
    retrieved = retrievals(left, right, np.array(sorted(pairs)), config.evaluation.dimensions)
    known = list(texts)
    nearest = [known[place] for place in retrieved[""].nearest]
    corpus = hashlib.sha256("\0".join(sorted(texts)).encode()).hexdigest()
    columns = {ROW: numbers, NEAREST: nearest, **retrieved[""].figures}
    table = pa.table(columns).replace_schema_metadata({CORPUS: corpus})
    sink.write(RETRIEVAL, table_bytes(table))
    return retrieved


def _is_new(known: dict[str, int], text: str) -> bool:
    """Return whether a text gets a number only now."""
    count = len(known)
    return known.setdefault(text, count) == count


def _columns(sink: Sink, *names: str) -> Iterator[Any]:
    """Yield each part's table of these columns, without rows that have an error."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for part in sorted(sink.parts()):
        table = pq.read_table(io.BytesIO(sink.read(part) or b""), columns=[*names, "error"])
        yield table.filter(pc.is_null(table["error"]))


def _numbers(sink: Sink) -> Iterator[tuple[float, float]]:
    for table in _columns(sink, "value", "reference"):
        both = (table[name].to_pylist() for name in table.column_names[:2])
        for value, expected in zip(*both, strict=True):
            if value is not None and expected is not None:
                yield value, number_of(expected)


def _f1(config: ScoreConfig, sink: Sink) -> dict[str, float]:
    """Return the mean F1 of all labels, and of each where there are few."""
    labels: list[str] = [*map(plain, config.task.choices)]
    pairs: list[tuple[list[str], list[str]]] = []
    for table in _columns(sink, "label", "reference", "label_scores"):
        for answer, expected, scores in zip(
            *(table[name].to_pylist() for name in table.column_names[:3]), strict=True
        ):
            if answer is not None and expected is not None:
                labels = labels or [*map(plain, json.loads(scores))]
                pairs.append((labels_of(answer), labels_of(expected)))
    if not pairs:
        return {}
    scores = f1_scores(pairs, labels)
    each = dict(zip(labels, scores, strict=True)) if len(labels) <= _MOST_NAMED else {}
    return {
        "f1": sum(scores) / len(scores),
        **{f"f1_{name}": value for name, value in each.items()},
    }


def grades(config: ScoreConfig, sink: Sink) -> Grades:
    """Count the judge's grades in its output."""
    import pyarrow.parquet as pq

    totals = Grades(config.evaluation.judge.choices)
    for name in sorted(sink.parts()):
        table = pq.read_table(io.BytesIO(sink.read(name) or b""), columns=["label"])
        totals.add(table["label"].to_pylist())
    return totals


if __name__ == "__main__":
    main()
