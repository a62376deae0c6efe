"""Figures and columns of a training run whose model is a mixture of experts."""

from __future__ import annotations

from llmops_kernel.kinds.kind import Column, Figure
from llmops_kernel.metrics.expert_load import IDLE, LOAD, WORST
from llmops_kernel.store.journal.summary import Unit
from llmops_kernel.store.journal.training_view import TrainingView


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
