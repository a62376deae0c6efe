"""Several runs as one table: what differs between them, what came of it, means over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from llmops_kernel.store.journal.summary import FigureValue
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.record import RunRecord
from llmops_kernel.views import format as fmt
from llmops_kernel.views.comparison_tables import CELL, color
from llmops_kernel.views.figures import compared_figures, group_of
from llmops_kernel.views.run_query.differences import (
    differences,
    is_seed,
    says_little,
    short_labels,
    value_text,
)
from llmops_kernel.views.run_query.row import CONFIG, Row, Value, config_values
from llmops_kernel.views.snapshot import progress_text


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """A run under the name that it has among the others."""

    name: str
    view: RunView
    record: RunRecord


@dataclass(frozen=True, kw_only=True)
class Field:
    """Something that differs between the runs: a path of their configs, or `code`."""

    path: str
    label: str
    is_minor: bool
    """Whether it says little, as the place of the output; a seed does not."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A figure of a run, or its mean over several."""

    number: float | None
    text: str
    """The number as its unit is written; of a mean with the standard deviation of the sample."""
    change: str
    """Change from the baseline: `× 1.36` or `+0.0123`; empty for itself, a dash for unknown."""
    is_best: bool = False


@dataclass(frozen=True, kw_only=True)
class Line:
    """A run; or several that differ in nothing but their seeds, whose figures are means."""

    runs: tuple[int, ...]
    label: str
    values: tuple[str, ...]
    """Values by field."""
    cells: tuple[Cell, ...]
    """Cells by figure."""
    is_base: bool
    """Whether the others' changes are from this line."""
    note: str = ""
    """Remark on a run that has not succeeded: `running, step 40 of 225`."""

    @property
    def is_mean(self) -> bool:
        return len(self.runs) > 1


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A line a run, in the order of the runs; before those of one setting their mean."""

    fields: tuple[Field, ...]
    figures: tuple[str, ...]
    lines: tuple[Line, ...]


_UNKNOWN = Cell(number=None, text=fmt.DASH, change=fmt.DASH)
_UNKNOWN_OF_BASE = replace(_UNKNOWN, change="")


def matrix_of(runs: Sequence[ComparedRun], *, base: int = 0) -> Matrix:
    """Compare every run with the one at `base`.

    A setting is what differs but for seeds and for what explains no figure, such as where a run
    writes; runs of one code and one setting are repetitions of it.
    """
    fields, values = _differing(runs)
    figures = _known_figures([run.view for run in runs])
    settings = _settings(fields, values)
    base_setting = next(members for members in settings if base in members)
    lines = []
    for members in settings:
        singles = [_single(index, runs, values, figures, base=base) for index in members]
        if len(members) > 1:
            lines.append(_mean(members, runs, fields, values, figures, base=base_setting))
        lines += singles
    firsts = [_first(figure) for figure in figures]
    if unlike := unlike_figures([run.record.config for run in runs]):
        firsts = [
            first.model_copy(update={"better": None}) if first.key in unlike else first
            for first in firsts
        ]
        lines = [_without_changes(line, firsts, unlike) for line in lines]
    labels = tuple(first.label for first in firsts)
    return Matrix(fields=fields, figures=labels, lines=_with_best(lines, firsts))


def unlike_figures(configs: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return keys of figures that mean another thing in each of these runs.

    A loss of one objective is no better or worse than a loss of another.
    """
    objectives = {(config.get("objective") or {}).get("type", "sft") for config in configs}
    return frozenset({"loss", "eval_loss"} if len(objectives) > 1 else ())


def _without_changes(line: Line, figures: Sequence[FigureValue], unlike: Collection[str]) -> Line:
    cells = (
        replace(cell, change=cell.change and fmt.DASH) if figure.key in unlike else cell
        for cell, figure in zip(line.cells, figures, strict=True)
    )
    return replace(line, cells=tuple(cells))


def _differing(runs: Sequence[ComparedRun]) -> tuple[tuple[Field, ...], list[tuple[str, ...]]]:
    """Return what differs, what matters most first, and each run's values of it."""
    rows = [Row(run.record.run_id, dict(config_values(run.record.config))) for run in runs]
    fields_found = differences(rows)
    labels = short_labels([each.path for each in fields_found])
    fields = [
        Field(
            path=each.path,
            label=labels[each.path],
            is_minor=says_little(each.path) and not is_seed(each.path),
        )
        for each in fields_found
    ]
    columns = [[_text(row.get(CONFIG + each.path)) for row in rows] for each in fields_found]
    for name, fact in _FACTS.items():
        texts = [fact(run) or fmt.DASH for run in runs]
        if len(set(texts)) > 1:
            fields.append(Field(path=name, label=name, is_minor=False))
            columns.append(texts)
    order = sorted(range(len(fields)), key=lambda i: fields[i].is_minor)
    lines = [tuple(columns[i][index] for i in order) for index in range(len(runs))]
    return tuple(fields[i] for i in order), lines


_FACTS: dict[str, Callable[[ComparedRun], str]] = {
    "code": lambda run: run.record.code_hash[:8],
    "cluster": lambda run: run.record.cluster,
}
"""Facts that may differ besides the configs."""
_NO_SETTING = frozenset({"cluster"})


def _text(value: Value) -> str:
    """Return a text uncut: what differs may be in its middle."""
    if isinstance(value, str):
        return value
    return ", ".join(value) or "none" if isinstance(value, tuple) else value_text(value)


def _settings(fields: Sequence[Field], values: Sequence[tuple[str, ...]]) -> list[tuple[int, ...]]:
    major = [
        i
        for i, field in enumerate(fields)
        if not (field.is_minor or is_seed(field.path) or field.path in _NO_SETTING)
    ]
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, line in enumerate(values):
        groups.setdefault(tuple(line[i] for i in major), []).append(index)
    return [tuple(members) for members in groups.values()]


Figure = Sequence[FigureValue | None]
"""A figure of each run; None for a run whose kind does not have it."""


def _known_figures(views: Sequence[RunView]) -> list[Figure]:
    """Return the figures that say what came of the runs, if at least one run knows them."""
    by_run = [{f.key: f for f in compared_figures(v) if group_of(f) == "result"} for v in views]
    keys = dict.fromkeys(key for values in by_run for key in values)
    figures = [[values.get(key) for values in by_run] for key in keys]
    return [each for each in figures if any(f is not None and f.text != fmt.DASH for f in each)]


def _single(
    index: int,
    runs: Sequence[ComparedRun],
    values: Sequence[tuple[str, ...]],
    figures: Sequence[Figure],
    *,
    base: int,
) -> Line:
    def cell(figure: Figure) -> Cell:
        value = figure[index]
        if value is None:
            return _UNKNOWN_OF_BASE if index == base else _UNKNOWN
        change = fmt.change(value.value, _value(figure[base]), value.unit)
        return Cell(number=value.value, text=value.text, change="" if index == base else change)

    return Line(
        runs=(index,),
        label=runs[index].name,
        values=values[index],
        cells=tuple(map(cell, figures)),
        is_base=index == base,
        note=_note(runs[index].view),
    )


def _note(view: RunView) -> str:
    if view.state == "SUCCEEDED":
        return ""
    return ", ".join(filter(None, [view.state.lower(), progress_text(view)]))


def _mean(
    members: tuple[int, ...],
    runs: Sequence[ComparedRun],
    fields: Sequence[Field],
    values: Sequence[tuple[str, ...]],
    figures: Sequence[Figure],
    *,
    base: tuple[int, ...],
) -> Line:
    """Return the line of a setting, compared with the mean of the baseline's setting.

    Figures of a run that has not ended well, or not yet, are of another step: they are left out.
    """

    def ended(indices: Sequence[int]) -> list[int]:
        return [index for index in indices if runs[index].view.state == "SUCCEEDED"]

    def cell(figure: Figure) -> Cell:
        example, values_of_setting = _first(figure), _known_values(figure, ended(members))
        if not values_of_setting:
            return _UNKNOWN_OF_BASE if members == base else _UNKNOWN
        mean = statistics.fmean(values_of_setting)
        text = fmt.by_unit(mean, example.unit)
        if len(values_of_setting) > 1:
            text += f" ± {fmt.by_unit(statistics.stdev(values_of_setting), example.unit)}"
        if len(values_of_setting) < len(members):
            text += f" ({len(values_of_setting)} of {len(members)})"
        base_values = _known_values(figure, ended(base))
        first = statistics.fmean(base_values) if base_values else None
        change = "" if members == base else fmt.change(mean, first, example.unit)
        return Cell(number=mean, text=text, change=change)

    columns = [[values[index][i] for index in members] for i in range(len(fields))]
    seeded = any(is_seed(f.path) and len(set(c)) > 1 for f, c in zip(fields, columns, strict=True))
    return Line(
        runs=members,
        label=f"mean of {len(members)} {'seeds' if seeded else 'runs'}",
        values=tuple(c[0] if len(set(c)) == 1 else f"{len(set(c))} values" for c in columns),
        cells=tuple(map(cell, figures)),
        is_base=members == base,
    )


def _value(figure: FigureValue | None) -> float | None:
    return None if figure is None else figure.value


def _known_values(figure: Figure, members: Sequence[int]) -> list[float]:
    numbers = (_value(figure[index]) for index in members)
    return [value for value in numbers if value is not None]


def _first(figure: Figure) -> FigureValue:
    return next(each for each in figure if each is not None)


def _with_best(lines: Sequence[Line], figures: Sequence[FigureValue]) -> tuple[Line, ...]:
    """Mark the best number of each figure, among the runs that succeeded and among the means."""
    best: dict[tuple[bool, int], float] = {}
    for is_mean in (False, True):
        for i, figure in enumerate(figures):
            rivals = [line for line in lines if line.is_mean == is_mean and not line.note]
            cells = [line.cells[i] for line in rivals]
            numbers = {cell.number for cell in cells if cell.number is not None}
            better = figure.better
            if better is not None and len(numbers) > 1:
                best[is_mean, i] = min(numbers) if better == "lower" else max(numbers)
    return tuple(_marked(line, best) for line in lines)


def _marked(line: Line, best: Mapping[tuple[bool, int], float]) -> Line:
    best_numbers = [best.get((line.is_mean, i)) for i in range(len(line.cells))]
    cells = (
        replace(cell, is_best=number is not None and cell.number == number and not line.note)
        for cell, number in zip(line.cells, best_numbers, strict=True)
    )
    return replace(line, cells=tuple(cells))


def heads_of(matrix: Matrix) -> list[str]:
    """Return the heads of a plain table: run, what differs, then the figures."""
    return ["run", *(field.label for field in _major_fields(matrix)), *matrix.figures]


def cells_of(matrix: Matrix, line: Line) -> list[str]:
    """Return a line's texts, a figure with its change from the baseline behind it."""
    major = [i for i, field in enumerate(matrix.fields) if not field.is_minor]
    remarks = ["baseline"] if line.is_base and not line.is_mean else []
    remarks += [line.note] if line.note else []
    label = f"{line.label} ({', '.join(remarks)})" if remarks else line.label
    figures = [
        f"{cell.text} ({cell.change})" if _has_change(cell) else cell.text for cell in line.cells
    ]
    return [label, *(line.values[i] for i in major), *figures]


def _major_fields(matrix: Matrix) -> list[Field]:
    return [field for field in matrix.fields if not field.is_minor]


def _has_change(cell: Cell) -> bool:
    return cell.change not in ("", fmt.DASH)


def matrix_text(matrix: Matrix) -> str:
    """Return a line a run; the changes in brackets are from the baseline."""
    every = [heads_of(matrix), *(cells_of(matrix, line) for line in matrix.lines)]
    widths = [max(len(line[i]) for line in every) for i in range(len(every[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in every
    )


def matrix_html(matrix: Matrix) -> str:
    """Return the same as a table; the runs have the colours of the picture."""
    heads = "".join(f'<th style="{CELL}">{escape(head)}</th>' for head in heads_of(matrix))
    body = "".join(_line_html(matrix, line) for line in matrix.lines)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _line_html(matrix: Matrix, line: Line) -> str:
    first, *rest = cells_of(matrix, line)
    mark = "" if line.is_mean else f'<span style="color:{color(line.runs[0])}">■</span> '
    num_values = len(rest) - len(line.cells)
    cells = [f'<td style="{CELL}">{escape(text)}</td>' for text in rest[:num_values]]
    cells += [_cell_html(cell) for cell in line.cells]
    return f'<tr><th style="{CELL}">{mark}{escape(first)}</th>{"".join(cells)}</tr>'


def _cell_html(cell: Cell) -> str:
    text = f"<b>{escape(cell.text)}</b>" if cell.is_best else escape(cell.text)
    change = f'<br><span style="opacity:.75">{escape(cell.change)}</span>' if cell.change else ""
    return f'<td style="{CELL};white-space:nowrap">{text}{change}</td>'
