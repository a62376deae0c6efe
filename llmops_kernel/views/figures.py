"""The figures of runs as data, as text and as a table, from their kinds' one list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from llmops_kernel.errors import inert
from llmops_kernel.kinds.kind import Figure
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.store.journal.summary import FigureValue, RunSummary
from llmops_kernel.store.journal.view import Progress, RunView, finite
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


# --- Runs as a table ---
# The same columns for terminal, plain text and HTML, from the kinds' figures.


STATE_COLUMN = "state"


@dataclass(frozen=True)
class RunTable:
    """Column names, one line of cells a run, and the columns whose cells are numbers."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...]

    def text(self) -> str:
        lines = [tuple(map(inert, line)) for line in (self.names, *self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.names))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def html(self) -> str:
        heads = "".join(f"<th>{escape(name)}</th>" for name in self.names)
        lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self.rows)
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def run_table(
    summaries: Sequence[RunSummary], *, now_s: float, names: Mapping[str, str] | None = None
) -> RunTable:
    """Return a table with one line per run.

    The columns are the listed figures of all kinds in the list, the most important ones first; a
    run whose kind lacks one shows a dash. `names` are by run id.
    """
    called = names or {}
    kinds = {summary.kind for summary in summaries}
    labels = _figure_labels(summaries)
    head = ["run", *(["name"] if called else []), *(["kind"] if len(kinds) > 1 else [])]
    head += [STATE_COLUMN, "progress", *labels, "cluster", "duration", "age", "attempt"]
    rows = []
    for summary in summaries:
        texts = {figure.label: figure.text for figure in summary.figures}
        row = [summary.run_id]
        row += [called.get(summary.run_id, fmt.DASH)] if called else []
        row += [summary.kind] if len(kinds) > 1 else []
        row += [summary.state.capitalize(), progress_cell(summary.progress)]
        row += [texts.get(label, fmt.DASH) for label in labels]
        ages = (summary.took_s(now_s=now_s), now_s - summary.created_s)
        row += [summary.cluster, *map(fmt.seconds, ages), str(summary.attempt)]
        rows.append(tuple(row))
    numbers = ("progress", *labels, "duration", "age", "attempt")
    return RunTable(names=tuple(head), rows=tuple(rows), numbers=numbers)


def _figure_labels(summaries: Sequence[RunSummary]) -> list[str]:
    labels = (f.label for summary in summaries for f in summary.figures if f.listed)
    return list(dict.fromkeys(labels))


def progress_cell(progress: Progress | None) -> str:
    """Return `40 of 225`, `1,200 rows`; steps are not named, as most runs count them."""
    if progress is None:
        return fmt.DASH
    total = "" if progress.total is None else f" of {progress.total:,}"
    unit = "" if progress.unit == "steps" else f" {progress.unit}"
    return f"{progress.done:,}{total}{unit}"
