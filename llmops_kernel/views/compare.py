"""Several runs over each other: curves, figures, start-up phases, and what differs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

from llmops_kernel.errors import inert
from llmops_kernel.views.columns import (
    curve_of,
    points_of,
    speed_of,
    speed_scale,
    speed_title,
    x_label,
)
from llmops_kernel.views.comparison_matrix import Matrix, matrix_html, matrix_text
from llmops_kernel.views.comparison_tables import (
    Named,
    color,
    lines_html,
    lines_text,
    phase_names,
    phase_seconds,
    result_lines,
    samples_html,
    samples_text,
    speed_lines,
    start_lines,
)
from llmops_kernel.views.snapshot import eval_points
from llmops_kernel.views.static_run import empty_axes, style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from llmops_kernel.store.diff import RunDiff


def render_png(runs: Named) -> bytes:
    """Draw loss, speed and start-up phases, one colour per run; on white."""
    from matplotlib.figure import Figure  # 0.3 s to import

    height = 3.2 + 0.22 * len(runs)
    figure = Figure(figsize=(11, height), dpi=100, layout="constrained", facecolor="white")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 1, 1.1))
    _draw_curve(left, runs)
    _draw_speed(middle, runs)
    _draw_phases(right, runs)
    # Below, one line a run: ids are long and must not cover the curves.
    lines = [left.plot([], [], color=color(i), label=name)[0] for i, (name, _) in enumerate(runs)]
    legend = figure.legend(handles=lines, loc="outside lower left", fontsize=8, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)  # A title with dollars is no formula.
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _lines(axes: Axes, runs: Named, name: str, *, scale: float = 1.0) -> bool:
    has_lines = False
    for index, (_, view) in enumerate(runs):
        points = points_of(view, name)
        if points:
            has_lines = True
            x, values = [p[0] for p in points], [p[1] * scale for p in points]
            axes.plot(x, values, color=color(index), linewidth=1.2)
    if has_lines:
        axes.set_xlabel(x_label(runs[0][1]), fontsize=8)
    return has_lines


def _draw_curve(axes: Axes, runs: Named) -> None:
    """Draw the curve of the runs' kind: the loss of training runs, evaluations as points."""
    name, label = curve_of(runs[0][1])
    has_evals = any(eval_points(view) for _, view in runs)
    style_axes(axes, f"{label} (points: evaluation)" if has_evals else label)
    has_lines = _lines(axes, runs, name)
    for index, (_, view) in enumerate(runs):
        for step, loss in eval_points(view):
            axes.plot(step, loss, "o", color=color(index), markersize=5)
            has_lines = True
    if not has_lines:
        empty_axes(axes, f"no {label} yet")


def _draw_speed(axes: Axes, runs: Named) -> None:
    """Draw the first speed that each run has: two kinds of number do not share an axis."""
    column = speed_of([view for _, view in runs])
    style_axes(axes, speed_title(column))
    if column is not None and _lines(axes, runs, column.name, scale=speed_scale(column)):
        axes.set_ylim(bottom=0)
    else:
        empty_axes(axes, "no speed yet")


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
        axes.barh(rows, widths, height=thickness * 0.9, color=color(index))
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def words_html(runs: Named, diffs: Sequence[RunDiff] = (), *, scores: str = "") -> str:
    """Return differences and results as HTML: evaluation, loss, samples. `scores` is HTML."""
    differences = "".join(diff.to_html() for diff in diffs)
    return differences + scores + lines_html(runs, result_lines(runs)) + samples_html(runs)


def code_html(diffs: Sequence[RunDiff]) -> str:
    """Return code and environment of each run against the baseline's, folded."""
    parts = []
    for diff in diffs:
        rest = replace(diff, config=[])
        if not rest.is_empty:
            before, after = diff.heads
            title = f"Code and environment: {before} → {after}"
            parts.append(f"<details><summary>{escape(title)}</summary>{rest.to_html()}</details>")
    return "".join(parts)


def folded_html(runs: Named) -> str:
    """Return speed and start-up, folded: rarely compared."""
    parts = (("Speed, memory and cost", speed_lines(runs)), ("Start-up", start_lines(runs)))
    return "".join(
        f"<details><summary>{title}</summary>{lines_html(runs, lines)}</details>"
        for title, lines in parts
        if lines
    )


def text(runs: Named, diffs: Sequence[RunDiff] = (), *, scores: str = "") -> str:
    """Return the comparison as plain text: differences, results, samples, then speed and code."""
    parts = [diff.text(with_code=False) for diff in diffs]
    parts += [scores, lines_text(runs, result_lines(runs)), samples_text(runs)]
    parts.append(lines_text(runs, [*speed_lines(runs), *start_lines(runs)]))
    parts += [diff.code_text() for diff in diffs]
    return inert("\n\n".join(part for part in parts if part))


def matrix_words(runs: Named, diffs: Sequence[RunDiff], matrix: Matrix) -> str:
    """Return several runs in plain text: the matrix and samples; then speed, then code."""
    parts = [matrix_text(matrix), samples_text(runs)]
    parts.append(lines_text(runs, [*speed_lines(runs), *start_lines(runs)]))
    parts += [diff.text() for each in diffs if not (diff := replace(each, config=[])).is_empty]
    return inert("\n\n".join(part for part in parts if part))


def bundles(
    runs: Named,
    diffs: Sequence[RunDiff] = (),
    *,
    scores: tuple[str, str] = ("", ""),
    matrix: Matrix | None = None,
) -> list[dict[str, Any]]:
    """Return outputs to display in turn: differences and results, curves, then the rest.

    With a `matrix`, as of three runs or more, that says what differs, and samples and code come
    behind the curves. `scores`: metrics of scorings as HTML and as text. Several outputs, because
    JupyterLab drops a picture inside HTML from a notebook it does not trust, and each notebook
    that papermill wrote is one.
    """
    html, plain_text = scores
    names = " and ".join(name for name, _ in runs)
    if matrix is None:
        first, behind = words_html(runs, diffs, scores=html), ""
        plain_text = text(runs, diffs, scores=plain_text)
    else:
        first, behind = matrix_html(matrix), samples_html(runs) + code_html(diffs)
        plain_text = matrix_words(runs, diffs, matrix)
    return [
        {"text/html": first, "text/plain": plain_text},
        {"image/png": render_png(runs), "text/plain": f"Curves of {names}"},
        {
            "text/html": behind + folded_html(runs),
            "text/plain": "Samples, code, speed and start-up: see above",
        },
    ]
