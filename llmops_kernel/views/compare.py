"""Several runs over each other: curves, figures, start-up phases, and what differs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views import format as fmt
from llmops_kernel.views.columns import (
    curve_of,
    points_of,
    speed_of,
    speed_scale,
    speed_title,
    x_label,
)
from llmops_kernel.views.figures import compared_figures
from llmops_kernel.views.snapshot import eval_points, progress_text, split_phases
from llmops_kernel.views.static_run import empty_axes, style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from llmops_kernel.store.diff.runs import RunDiff

Named = Sequence[tuple[str, RunView]]
"""(run id, view), the older first."""
COLORS = ("#1976d2", "#e65100", "#388e3c", "#7b1fa2", "#00838f", "#c2185b", "#5d4037", "#455a64")
_CELL = "text-align:left;padding:2px 14px 2px 0"


def render_png(runs: Named) -> bytes:
    """Loss, speed and start-up phases, one colour a run; on white."""
    from matplotlib.figure import Figure  # 0.3 s to import

    height = 3.2 + 0.22 * len(runs)
    figure = Figure(figsize=(11, height), dpi=100, layout="constrained", facecolor="white")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 1, 1.1))
    _draw_curve(left, runs)
    _draw_speed(middle, runs)
    _draw_phases(right, runs)
    # Below, one line a run: ids are long and must not cover the curves.
    lines = [left.plot([], [], color=_color(i), label=name)[0] for i, (name, _) in enumerate(runs)]
    figure.legend(handles=lines, loc="outside lower left", fontsize=8, frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _color(index: int) -> str:
    return COLORS[index % len(COLORS)]


def _lines(axes: Axes, runs: Named, name: str, *, scale: float = 1.0) -> bool:
    drawn = False
    for index, (_, view) in enumerate(runs):
        points = points_of(view, name)
        if points:
            drawn = True
            x, values = [p[0] for p in points], [p[1] * scale for p in points]
            axes.plot(x, values, color=_color(index), linewidth=1.2)
    if drawn:
        axes.set_xlabel(x_label(runs[0][1]), fontsize=8)
    return drawn


def _draw_curve(axes: Axes, runs: Named) -> None:
    """The curve of the runs' kind: the loss of training runs, with evaluations as points."""
    name, label = curve_of(runs[0][1])
    has_evals = any(eval_points(view) for _, view in runs)
    style_axes(axes, f"{label} (points: evaluation)" if has_evals else label)
    drawn = _lines(axes, runs, name)
    for index, (_, view) in enumerate(runs):
        for step, loss in eval_points(view):
            axes.plot(step, loss, "o", color=_color(index), markersize=5)
            drawn = True
    if not drawn:
        empty_axes(axes, f"no {label} yet")


def _draw_speed(axes: Axes, runs: Named) -> None:
    """The first speed that each run has: two kinds of number do not share an axis."""
    column = speed_of([view for _, view in runs])
    style_axes(axes, speed_title(column))
    if column is not None and _lines(axes, runs, column.name, scale=speed_scale(column)):
        axes.set_ylim(bottom=0)
    else:
        empty_axes(axes, "no speed yet")


def phase_seconds(view: RunView) -> dict[str, float]:
    """Finished start-up phases, those of one name added up."""
    seconds: dict[str, float] = {}
    for span in split_phases(view)[0]:
        if span.duration_s is not None:
            seconds[span.name] = seconds.get(span.name, 0.0) + span.duration_s
    return seconds


def phase_names(runs: Named) -> list[str]:
    """Return the names in order of the kinds' start-up phases; other phases come last."""
    names = dict.fromkeys(name for _, view in runs for name in phase_seconds(view))
    in_order = dict.fromkeys(name for _, view in runs for name in kind_named(view.kind).phases)
    known = [name for name in in_order if name in names]
    return known + [name for name in names if name not in in_order]


def _draw_phases(axes: Axes, runs: Named) -> None:
    style_axes(axes, "start-up, s")
    names = phase_names(runs)
    if not names:
        empty_axes(axes, "no phase yet")
        return
    thickness = 0.8 / len(runs)
    for index, (_, view) in enumerate(runs):
        seconds = phase_seconds(view)
        rows = [row - 0.4 + thickness * (index + 0.5) for row in range(len(names))]
        widths = [seconds.get(name, 0.0) for name in names]
        axes.barh(rows, widths, height=thickness * 0.9, color=_color(index))
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def table(runs: Named) -> list[list[str]]:
    """Heads, then a line a figure, then a line a phase; a column a run."""
    columns = [_figures(view) for _, view in runs]
    labels = list(dict.fromkeys(label for column in columns for label in column))
    lines = [["", *(name for name, _ in runs)]]
    lines += [[label, *(column.get(label, fmt.DASH) for column in columns)] for label in labels]
    seconds = [phase_seconds(view) for _, view in runs]
    lines += [
        [name.replace("_", " "), *(fmt.seconds(mine.get(name)) for mine in seconds)]
        for name in phase_names(runs)
    ]
    return lines


def _figures(view: RunView) -> dict[str, str]:
    values = {"state": view.state.capitalize(), "progress": progress_text(view) or fmt.DASH}
    values |= {figure.label: figure.text for figure in compared_figures(view)}
    values["processes"] = view.warmth.short if view.warmth else fmt.DASH
    return values


def table_html(runs: Named) -> str:
    """The table; the runs' names carry the colours of the picture."""
    head, *lines = table(runs)
    heads = "".join(
        f'<th style="{_CELL}"><span style="color:{_color(i)}">■</span> {escape(name)}</th>'
        for i, name in enumerate(head[1:])
    )
    body = "".join(
        f'<tr><td style="{_CELL};opacity:.75">{escape(label)}</td>'
        + "".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in cells)
        + "</tr>"
        for label, *cells in lines
    )
    return f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{body}</tbody></table>"


def table_text(runs: Named) -> str:
    """The table in plain text."""
    lines = table(runs)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def bundles(runs: Named, diffs: Sequence[RunDiff] = ()) -> list[dict[str, Any]]:
    """Outputs to display one after the other: the picture, then tables and differences.

    Two, because JupyterLab drops a picture inside HTML from a notebook it does not trust,
    and each notebook that papermill wrote is one.
    """
    words = "\n\n".join([table_text(runs), *(diff.text() for diff in diffs)])
    html = table_html(runs) + "".join(diff.to_html() for diff in diffs)
    names = " and ".join(name for name, _ in runs)
    return [
        {"image/png": render_png(runs), "text/plain": f"Curves of {names}"},
        {"text/html": html, "text/plain": words},
    ]
