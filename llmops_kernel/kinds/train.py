"""The kind `train`: a run of our training loop from a training config."""

from __future__ import annotations

import functools
from collections.abc import Collection
from operator import attrgetter
from typing import Any

from llmops_kernel.kinds.kind import (
    ALL_ACTIONS,
    START_WORDS,
    Column,
    Figure,
    RunKind,
    cost_figure,
    energy_figures,
)
from llmops_kernel.metrics.events import PHASES
from llmops_kernel.metrics.expert_load import IDLE, LOAD, WORST
from llmops_kernel.metrics.scores import lower_is_better
from llmops_kernel.store.journal.summary import Unit
from llmops_kernel.store.journal.training_view import RECENT_STEPS, TrainingView
from llmops_kernel.store.record import RunRecord, beginning

# --- Figures and columns of a training run whose model is a mixture of experts ---


def _column(name: str, label: str, unit: Unit) -> Column:
    return Column(
        name=name, label=label, unit=unit, value=lambda event: (event.values or {}).get(name)
    )


def _figure(column: Column, hint: str) -> Figure:
    return Figure(
        key=column.name,
        label=column.label,
        unit=column.unit,
        better="lower",
        hint=hint,
        value=lambda view: column.value(view.steps[-1]) if view.steps else None,
    )


_LOAD = _column(LOAD, "busiest expert / mean", "number")
_WORST = _column(WORST, "busiest expert / mean, worst layer", "number")
_IDLE = _column(IDLE, "idle experts", "fraction")
_COLUMNS = (_LOAD, _WORST, _IDLE)
EXPERT_NAMES = frozenset(column.name for column in _COLUMNS)
_FIGURES = (
    _figure(
        _LOAD,
        "tokens of the busiest expert over the mean of its layer's experts, in the last step;"
        " the mean over the layers, 1 is balanced",
    ),
    _figure(_WORST, "the same of the layer whose busiest expert has most"),
    _figure(_IDLE, "experts that got no token in the last step, of all layers"),
)


def expert_columns(view: TrainingView) -> tuple[Column, ...]:
    """The columns of a run that has counted its experts' tokens; else none."""
    return tuple(column for column in _COLUMNS if column.name in view.logged)


def expert_figures(view: TrainingView) -> tuple[Figure, ...]:
    return tuple(figure for figure in _FIGURES if figure.key in view.logged)


# --- A training run ---


WORDS = {
    **START_WORDS,
    "batch_search": "Looking for the largest micro batch that fits",
    "workers": "Starting the workers",
    "imports": "Importing the training stack",
    "compile": "Compiling DeepSpeed's CPU optimizer, usually 1 to 3 minutes, once per machine",
    "process_group": "Connecting the workers",
    "hub": "Contacting the Hugging Face Hub",
    "data": "Preparing the data",
    "model_load": "Loading the model",
    "engine": "Building optimizer and engine",
    "merge": "Merging the adapter that the training begins with",
    "reference": "Computing log-probabilities of the model before the training",
    "first_step": "Running the first step",
    "evaluate": "Evaluating",
    "save": "Saving the result",
}


def describe(record: RunRecord) -> str:
    """`SmolLM2-135M-Instruct · dpo · lora · ddp × 2`, without `sft` and what a config lacks.

    A training that begins with a run names it in place of the folder of its result.
    """
    config = record.config
    model = beginning(_section(config, "model"))
    method = _section(config, "method").get("type")
    objective = _section(config, "objective").get("type")
    parallelism = _section(config, "parallelism")
    strategy, workers = parallelism.get("strategy"), parallelism.get("num_workers")
    spread = f"{strategy} × {workers}" if strategy and workers else strategy
    parts = (model, "" if objective == "sft" else objective, method, spread)
    return " · ".join(str(part) for part in parts if part)


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def _nan_note(view: TrainingView) -> str:
    return "" if view.nan_since is None else f"since step {view.nan_since:,}"


def _mfu_hint(view: TrainingView) -> str:
    start = view.start
    if start is None or not start.peak_flops:
        why = f" ({start.peak_source})" if start and start.peak_source else ""
        return f"model FLOPs utilization; the device's peak is not known{why}"
    size, unit = (1e12, "TFLOPS") if start.peak_flops >= 1e12 else (1e9, "GFLOPS")
    peak = f"{start.peak_flops / size:,.3g} {unit}"
    return (
        f"model FLOPs utilization of {peak} a worker, {start.peak_source}; {_of_steps(view)}"
        f"{_other_mfus(view)}"
    )


def _of_steps(view: TrainingView, *, ended: str = "totals") -> str:
    """Which steps a speed is of, and which time counts."""
    whole = view.whole
    if whole is None:
        return f"median of the last {RECENT_STEPS} steps"
    return (
        f"{ended} of {whole.steps:,} steps, without the first of each start, evaluations and saves"
    )


def _other_mfus(view: TrainingView) -> str:
    """What other definitions give for the same steps."""
    words = ""
    if view.mfu_palm is not None:
        words += (
            f"; by PaLM's formula, which also counts what LoRA and causal attention leave out"
            f" (mfu_palm), {view.mfu_palm:.1%}"
        )
    if view.hfu is not None:
        words += (
            "; of all that was computed, also padding, masked tokens and what is computed once"
            f" more (hfu), {view.hfu:.1%}"
        )
    return words


def _last(name: str) -> Any:
    """Read a field of the last step."""
    return lambda view: getattr(view.steps[-1], name) if view.steps else None


def more_figures(view: TrainingView) -> tuple[Figure, ...]:
    """What the run has cost, the best value of each evaluation metric but the loss, and the rows
    that were skipped, if there are any.
    """
    names = sorted(
        name for name in view.best_metrics if not name.removeprefix("eval_").startswith(_NO_BETTER)
    )
    skipped = (_SKIPPED,) if view.skipped_rows else ()
    return (
        cost_figure(view),
        *energy_figures(view),
        *(_metric_figure(name) for name in names),
        *skipped,
    )


_NO_BETTER = (
    "loss",
    "logp_",
    "reward_bad",
    "reward_chosen",
    "reward_good",
    "reward_rejected",
    "similarity_",
)
"""Beginnings of metrics that have a figure of their own, or of which none is the best."""


def _metric_figure(name: str) -> Figure:
    return Figure(
        key=name,
        label=f"best {name.removeprefix('eval_').replace('_', ' ')}",
        unit="number",
        better="lower" if lower_is_better(name) else "higher",
        hint="the best value of all evaluations",
        value=lambda view: view.best_metrics.get(name),
        live=False,
    )


_SKIPPED = Figure(
    key="skipped_rows",
    label="rows skipped",
    unit="count",
    better="lower",
    hint="rows of the training data that could not be read or formatted; the warnings name some",
    value=attrgetter("skipped_rows"),
)
LOSS = Figure(
    key="loss",
    label="loss",
    unit="loss",
    better="lower",
    hint="training loss of the last step",
    value=attrgetter("loss"),
    note=_nan_note,
    listed=True,
)
FIGURES = (
    LOSS,
    Figure(
        key="eval_loss",
        label="eval loss",
        unit="loss",
        better="lower",
        hint="loss on the held-out rows",
        value=attrgetter("last_eval_loss"),
        listed=True,
    ),
    Figure(
        key="mfu",
        label="MFU",
        unit="fraction",
        better="higher",
        hint=_mfu_hint,
        value=attrgetter("mfu"),
        listed=True,
    ),
    Figure.rate(
        "tokens_per_second",
        "tokens/s",
        lambda view: f"all workers together, without padding; {_of_steps(view)}",
        attrgetter("tokens_per_second"),
        listed=True,
    ),
    Figure(
        key="step_time",
        label="step time",
        unit="seconds",
        better="lower",
        hint=lambda view: _of_steps(view, ended="mean"),
        value=attrgetter("step_time_s"),
    ),
    Figure(
        key="peak_memory",
        label="peak memory",
        unit="bytes",
        better="lower",
        hint="of one device, by its allocator",
        value=attrgetter("peak_memory_bytes"),
    ),
    Figure(
        key="host_memory",
        label="host memory",
        unit="bytes",
        better="lower",
        hint="resident memory of the first worker's process",
        value=_last("host_memory_bytes"),
    ),
    Figure(
        key="learning_rate",
        label="learning rate",
        unit="exponent",
        hint="of the last step",
        value=_last("learning_rate"),
        compared=False,
    ),
    Figure(
        key="submit_to_first_step",
        label="submit to first step",
        unit="seconds",
        better="lower",
        hint="from submit to the first optimizer step of the newest attempt",
        value=attrgetter("submit_to_first_step_s"),
        live=False,
    ),
)
DAY_S = 86_400
COLUMNS = (
    Column.of_field("step", "step", "count"),
    Column.of_field("loss", "loss", "loss"),
    Column.of_field("mfu", "MFU", "fraction"),
    Column.of_field("tokens_per_second", "tokens/s", "per_second"),
    Column.of_field("peak_memory_bytes", "peak memory", "bytes"),
    Column.of_field("host_memory_bytes", "host memory", "bytes"),
    Column.of_field("step_time_s", "step time", "seconds"),
    Column.of_field("learning_rate", "learning rate", "exponent"),
    Column.of_field("grad_norm", "gradient norm", "number"),
    # What the charts can have on their x axis; a column of 32 bits cannot hold seconds since 1970.
    Column.of_field("epoch", "epoch", "number"),
    Column.of_field("tokens", "tokens", "count"),
    Column(name="utc_day", label="day", unit="count", value=lambda row: row.time_s // DAY_S),
    Column(name="utc_second", label="second", unit="seconds", value=lambda row: row.time_s % DAY_S),
)


def logged_columns(view: TrainingView, *, but: Collection[str] = ()) -> tuple[Column, ...]:
    """A column for each number that was reported with `track.log`, without those of `but`."""
    return tuple(_logged_column(name) for name in view.logged if name not in but)


@functools.cache
def _logged_column(name: str) -> Column:
    return Column(
        name=name,
        label=name.replace("_", " "),
        unit="number",
        value=lambda event: (event.values or {}).get(name),
        is_logged=True,
    )


TRAIN = RunKind(
    name="train",
    title="Training run",
    entrypoint="exec python -m llmops_kernel.train.ray.entrypoint",
    is_profiled=True,
    config_file="llmops_kernel.config.assist.file_kinds:TRAIN",
    complete="llmops_kernel.services.scoring.model:with_start",
    view=TrainingView,
    figures=FIGURES,
    more_figures=lambda view: (*expert_figures(view), *more_figures(view)),
    columns=COLUMNS,
    more_columns=lambda view: (
        *expert_columns(view),
        *logged_columns(view, but=EXPERT_NAMES),
    ),
    curve="loss",
    phases=PHASES,
    words=WORDS,
    no_progress="This run ended before its first step.",
    actions=ALL_ACTIONS | {"chat"},
    describe=describe,
)
