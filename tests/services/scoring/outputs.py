"""Scored outputs as a scoring writes them, and score runs that have ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from llmops_kernel.services.scoring.output import ScoredOutput
from llmops_kernel.store.store import RunStore
from tests.server.runs import make_run

_TYPES = {
    "row_number": pa.int64(),
    "label_scores": pa.string(),
    "logprob": pa.float64(),
    "embedding": pa.list_(pa.float32()),
    "prompt_tokens": pa.int64(),
    "output_tokens": pa.int64(),
}
_OWN = (
    "row_number", "output", "label", "label_scores", "parsed", "logprob", "prompt_tokens",
    "output_tokens", "finish_reason", "reference", "prompt", "error",
)  # fmt: skip


def scored(number: int, output: str | None = "", **more: Any) -> dict[str, Any]:
    """One row; `more` has columns of the input and `metric_<name>`."""
    return {
        "text": f"text {number}",
        "row_number": number,
        "output": output,
        "reference": f"reference {number}",
        "prompt": f"prompt {number}",
    } | more


def write_output(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    part_rows: int = 3,
    success: bool = True,
    totals: Mapping[str, Any] | None = None,
) -> str:
    """Write rows as parts, each with the columns that its own rows have; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "_ledger").mkdir(exist_ok=True)
    (folder / "_ledger" / "shard.jsonl").write_text("{}\n")
    for start in range(0, len(rows), part_rows):
        part = rows[start : start + part_rows]
        names = dict.fromkeys((*(name for row in part for name in row), *_OWN))
        columns = {name: pa.array([row.get(name) for row in part], _type(name)) for name in names}
        pq.write_table(pa.table(columns), folder / f"part-{start // part_rows:08d}.parquet")
    if totals is not None:
        (folder / "_metrics.json").write_text(json.dumps(totals))
    if success:
        (folder / "_SUCCESS").touch()
    return str(folder)


def output(folder: Path, rows: Sequence[Mapping[str, Any]], **more: Any) -> ScoredOutput:
    return ScoredOutput(write_output(folder, rows, **more), name=folder.name)


def scored_run(
    store: RunStore,
    run_id: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    key: str = "",
    created_s: float | None = None,
    judge: Mapping[str, Any] | None = None,
    labels: Sequence[str | None] = (),
    **more: Any,
) -> None:
    """A run that has ended, with its output in its folder; `labels`: the judge's, by row."""
    config: dict[str, Any] = {"input": {"path": "rows.jsonl", "key": key}, "output": {"url": ""}}
    if judge is not None:
        config["evaluation"] = {"judge": judge}
    root = make_run(store, run_id, created_s=created_s, kind="score", config=config)
    write_output(root / "output", rows, **more)
    if labels:
        write_grades(root / "output", labels)


def write_grades(folder: Path, labels: Sequence[str | None], *, part_rows: int = 3) -> None:
    """Write what a judge's scoring of an output writes, without its ledger."""
    (folder / "_judge").mkdir()
    for start in range(0, len(labels), part_rows):
        part = labels[start : start + part_rows]
        numbers = range(start, start + len(part))
        columns = {
            "input_row_number": pa.array(numbers, pa.int64()),
            "row_number": pa.array(numbers, pa.int64()),
            "label": pa.array(part, pa.string()),
        }
        path = folder / "_judge" / f"part-{start // part_rows:08d}.parquet"
        pq.write_table(pa.table(columns), path)


def _type(name: str) -> Any:
    if name.startswith("metric_"):
        return pa.float64()
    return _TYPES.get(name, None if name in ("id", "prompt") else pa.string())
