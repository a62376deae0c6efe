"""The figures of a run as data and text, from its kind's one list."""

from __future__ import annotations

from typing import Literal

from llmops_kernel.kinds.kind import Figure
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.store.journal.summary import FigureValue
from llmops_kernel.store.journal.view import RunView, finite
from llmops_kernel.views import format as fmt


def figures(view: RunView) -> tuple[FigureValue, ...]:
    """Return every figure of the run's kind, in order of importance; an unknown one as a dash."""
    return tuple(_value(figure, view) for figure in kind_named(view.kind).all_figures(view))


def live_figures(view: RunView) -> tuple[FigureValue, ...]:
    """Return the figures that the live panel and the terminal's live screen show."""
    figures = kind_named(view.kind).all_figures(view)
    return tuple(_value(figure, view) for figure in figures if figure.live)


def compared_figures(view: RunView) -> tuple[FigureValue, ...]:
    """Return the figures of comparisons and of the table that stays when a run has ended."""
    figures = kind_named(view.kind).all_figures(view)
    return tuple(_value(figure, view) for figure in figures if figure.compared)


FigureGroup = Literal["result", "speed", "start"]
_RESULTS = ("loss", "number", "count", "exponent")


def group_of(figure: FigureValue) -> FigureGroup:
    """Return whether a figure is about the result of a run, its speed, or its start."""
    if figure.key == "submit_to_first_step":
        return "start"
    return "result" if figure.unit in _RESULTS else "speed"


def _value(figure: Figure, view: RunView) -> FigureValue:
    value = figure.value(view)
    text = fmt.by_unit(value, figure.unit)
    note = figure.note(view) if figure.note is not None else ""
    return FigureValue(
        key=figure.key,
        label=figure.label,
        value=finite(value),
        text=f"{text} {note}" if note else text,
        unit=figure.unit,
        better=figure.better,
        hint=figure.hint_for(view),
        listed=figure.listed,
    )
