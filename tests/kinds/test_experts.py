"""A mixture of experts has charts and figures for how its tokens are spread; a dense model none."""

from __future__ import annotations

from llmops_kernel.kinds.registry import kind_named, new_view
from llmops_kernel.metrics.events import StepEvent
from llmops_kernel.metrics.expert_load import IDLE, LOAD, WORST
from llmops_kernel.views.columns import PackedRows, points_of
from llmops_kernel.views.figures import figures

LOADS = {LOAD: 1.5, WORST: 2.25, IDLE: 0.125}


def step(number: int, values: dict[str, float] | None) -> StepEvent:
    return StepEvent(
        stream="1-worker-1", seq=number, time_s=float(number), step=number, values=values
    )


def test_the_load_is_a_chart_and_a_figure() -> None:
    view = new_view("train", [step(1, LOADS), step(2, {**LOADS, IDLE: 0.25})])
    assert points_of(view, LOAD) == [(1, 1.5), (2, 1.5)]
    assert points_of(view, IDLE) == [(1, 0.125), (2, 0.25)]
    shown = {figure.key: figure for figure in figures(view)}
    assert (shown[LOAD].text, shown[WORST].text) == ("1.5", "2.25")
    assert (shown[IDLE].value, shown[IDLE].text) == (0.25, "25.0 %")
    assert shown[LOAD].better == shown[IDLE].better == "lower"


def test_a_dense_model_has_none_of_them() -> None:
    view = new_view("train", [step(1, None), step(2, None)])
    packed = PackedRows()
    packed.sync(view)
    assert [column.name for column in packed.columns] == [
        column.name for column in kind_named("train").columns
    ]
    assert not {figure.key for figure in figures(view)} & LOADS.keys()
