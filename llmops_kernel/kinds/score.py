"""The kind `score`: a model's answers for a table, with metrics."""

from __future__ import annotations

import functools
from typing import Any

from llmops_kernel.kinds.kind import (
    START_PHASES,
    START_WORDS,
    Column,
    Figure,
    RunKind,
    cost_figure,
    energy_figures,
)
from llmops_kernel.metrics.scores import better_of
from llmops_kernel.store.journal.score_view import ScoreView
from llmops_kernel.store.journal.summary import Unit
from llmops_kernel.store.record import RunRecord

_ERRORS = "rows that could not be scored; the column `error` says why"
_KV_CACHE = "share of the KV cache in use, of the fullest replica"
_REPLICAS = "copies of the model that work at the same time"


def describe(record: RunRecord) -> str:
    """Return `SmolLM2-135M-Instruct + adapter · generate · data/menu-eval.jsonl`."""
    config = record.config
    model = config.get("model") or {}
    name = str(model.get("id") or model.get("run") or "")
    if model.get("adapter"):
        name += f" + adapter of {model['run']}" if model.get("run") else " + adapter"
    task = (config.get("task") or {}).get("type")
    path = (config.get("input") or {}).get("path")
    return " · ".join(str(part) for part in (name, task, path) if part)


def more_figures(view: ScoreView) -> tuple[Figure, ...]:
    """Return the cost of the run, and a figure for each metric of the whole table."""
    return (cost_figure(view), *energy_figures(view), *(_metric(name) for name in view.metrics))


@functools.cache
def _metric(name: str) -> Figure:
    return Figure(
        key=name,
        label=name.replace("_", " "),
        unit="number",
        better=better_of(name),
        hint="of all rows without an error",
        value=lambda view: view.metrics.get(name),
    )


def _rate(key: str, label: str, *, listed: bool = False) -> Figure:
    hint = "all replicas together"
    return Figure.rate(key, label, hint, lambda view: view.value(key), listed=listed)


def _value(key: str, label: str, unit: Unit, hint: str, **more: Any) -> Figure:
    return Figure(
        key=key, label=label, unit=unit, hint=hint, value=lambda view: view.value(key), **more
    )


def _column(name: str, label: str, unit: Unit) -> Column:
    return Column(name=name, label=label, unit=unit, value=lambda event: event.values.get(name))


SCORE = RunKind(
    name="score",
    title="Score run",
    instead_of_profile="it makes no optimizer steps: Ray's Dashboard has stacks and flame graphs of"
    " its replicas (py-spy), and `llmops bench` measures the engine",
    entrypoint="exec python -m llmops_kernel.score.driver",
    config_file="llmops_kernel.kinds.score_config:SCORE_FILE",
    complete="llmops_kernel.services.scoring.model:with_model",
    prepare="llmops_kernel.services.scoring.standing:ensure_engine",
    view=ScoreView,
    figures=(
        _rate("rows_per_second", "rows/s", listed=True),
        _rate("output_tokens_per_second", "output tokens/s", listed=True),
        _rate("prompt_tokens_per_second", "prompt tokens/s"),
        _value("errors", "errors", "count", _ERRORS, better="lower", listed=True),
        _value("kv_cache", "KV cache", "fraction", _KV_CACHE, compared=False),
        _value("replicas", "replicas", "count", _REPLICAS, compared=False),
    ),
    more_figures=more_figures,
    columns=(
        Column.of_field("done", "row", "count"),
        _column("rows_per_second", "rows/s", "per_second"),
        _column("output_tokens_per_second", "output tokens/s", "per_second"),
        _column("prompt_tokens_per_second", "prompt tokens/s", "per_second"),
        _column("kv_cache", "KV cache", "fraction"),
        _column("errors", "errors", "count"),
    ),
    curve="rows_per_second",
    phases=(*START_PHASES, "input", "model", "engine", "first_rows"),
    words={
        **START_WORDS,
        "input": "Reading the input's size",
        "model": "Looking up the model",
        "engine": "Loading the model into the engine",
        "first_rows": "Waiting for the first answers",
        "evaluate": "Computing the metrics",
    },
    saves="the finished rows",
    speeds=("output_tokens_per_second", "prompt_tokens_per_second"),
    no_progress="This run ended before its first row.",
    output_comparison="llmops_kernel.services.scoring.runs:compare_runs",
    describe=describe,
)
