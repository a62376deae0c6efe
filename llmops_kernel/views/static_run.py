"""A run as a picture, a table and plain text, where no live panel is available."""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from llmops_kernel.errors import inert
from llmops_kernel.store.journal.summary import FigureValue
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.record import RunRecord
from llmops_kernel.views import format as fmt
from llmops_kernel.views.columns import (
    curve_of,
    points_of,
    speed_of,
    speed_scale,
    speed_title,
    x_label,
)
from llmops_kernel.views.figures import compared_figures, figures
from llmops_kernel.views.snapshot import (
    describe,
    elapsed_s,
    eval_points,
    left_text,
    processes_text,
    progress_text,
    sample_table,
    span_text,
    split_phases,
    until_s,
    waiting_text,
)
from llmops_kernel.views.state_text import called, shown_outputs, state_text
from llmops_kernel.views.waterfall import TITLE, Step, steps_of, waterfall_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE, POINT, GREY = "#1976d2", "#e65100", "#757575"
_SAMPLE_WIDTH = 100
_PICTURE_WIDTH, _PICTURED, _LINE_INCHES = 140, 3, 0.18
_CELL = "text-align:left;padding:2px 14px 2px 0"


def render_png(view: RunView, *, title: str = "", now_s: float | None = None) -> bytes:
    """Draw loss with evaluations, speed, and the waterfall; on white, 1100 x 320 px.

    Below them the newest samples, where the run has some.
    """
    from matplotlib.figure import Figure  # 0.3 s to import

    lines, losses = picture_lines(view), waterfall_of(view)
    below = _LINE_INCHES * (len(lines) + 1) if lines else 0.0
    bars = [*steps_of(losses)] if losses is not None else []
    lost = _LINE_INCHES * (len(bars) + 2) if bars else 0.0
    size = (11, 3.2 + lost + below)
    figure = Figure(figsize=size, dpi=100, layout="constrained", facecolor="white")
    heights = (3.2, max(lost, 0.01), max(below, 0.01))
    grid = figure.add_gridspec(3, 3, width_ratios=(1.2, 1, 1.1), height_ratios=heights)
    left, middle, right = (figure.add_subplot(grid[0, column]) for column in range(3))
    draw_curve(left, view)
    draw_speed(middle, view)
    draw_waterfall(right, view, now_s=time.time() if now_s is None else now_s)
    if title:
        figure.suptitle(fmt.ellipsis(title, 90), fontsize=10, parse_math=False)
    if bars:
        _draw_losses(figure.add_subplot(grid[1, :]), bars)
    if lines:
        _draw_lines(figure.add_subplot(grid[2, :]), lines)
    buffer = io.BytesIO()
    with warnings.catch_warnings():  # A sample may have letters that the font lacks.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(buffer, format="png")
    return buffer.getvalue()


def picture_lines(view: RunView) -> list[str]:
    """Return a few of the newest samples as lines of a picture; empty without samples."""
    samples = sample_table(view)
    lines = [f"samples {samples.at}"] if samples.rows else []
    for row in samples.rows[:_PICTURED]:
        texts = dict(zip(samples.columns, row, strict=True))
        names = [name for name in ("prompt", "answer", "reference") if name in texts]
        lines += [f"{name}: {fmt.one_line(texts[name], _PICTURE_WIDTH)}" for name in names]
    return lines


def _draw_losses(axes: Axes, bars: Sequence[Step]) -> None:
    style_axes(axes, TITLE)
    for place, bar in enumerate(bars):
        colour = POINT if bar.is_loss else LINE
        axes.barh(place, bar.width, left=bar.left, color=colour, height=0.7)
        axes.text(1.01, place, bar.text, va="center", fontsize=8)
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars], fontsize=8)
    axes.set_xlim(0, 1.08)
    axes.set_xticks([])
    axes.invert_yaxis()


def _draw_lines(axes: Axes, lines: Sequence[str]) -> None:
    axes.axis("off")
    for number, line in enumerate(lines):
        # A dollar is no formula here.
        axes.text(
            0.0,
            1 - (number + 0.5) / len(lines),
            line,
            color=GREY if number == 0 else "#333333",
            fontsize=8,
            parse_math=False,
            transform=axes.transAxes,
            va="center",
            in_layout=False,  # A wide text would make the charts narrow.
        )


def style_axes(axes: Axes, title: str) -> None:
    # A title is a user's text: a dollar is no formula.
    axes.set_title(title, fontsize=9, loc="left", parse_math=False)
    axes.tick_params(labelsize=8, colors="#444444")
    axes.grid(visible=True, color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#bbbbbb")


def empty_axes(axes: Axes, text: str) -> None:
    axes.text(
        0.5,
        0.5,
        text,
        ha="center",
        va="center",
        fontsize=8,
        color=GREY,
        wrap=True,
        parse_math=False,
    )
    axes.set_xticks([])
    axes.set_yticks([])


def _plot(
    axes: Axes,
    points: list[tuple[float, float]],
    view: RunView,
    *,
    color: str = LINE,
    label: str,
) -> None:
    x, values = [p[0] for p in points], [p[1] for p in points]
    axes.plot(x, values, color=color, linewidth=1.2, label=label, marker="." * (len(x) < 3))
    axes.set_xlabel(x_label(view), fontsize=8)


def draw_curve(axes: Axes, view: RunView) -> None:
    """Draw the kind's curve as a line (a training run's loss), evaluation losses as points."""
    name, label = curve_of(view)
    style_axes(axes, label)
    points, evals = points_of(view, name), eval_points(view)
    if not points and not evals:
        empty_axes(axes, waiting_text(view) or f"no {label or 'curve'}")
        return
    if points:
        _plot(axes, points, view, label="training")
    if evals:
        axes.plot(*zip(*evals, strict=True), "o", color=POINT, markersize=5, label="evaluation")
        axes.legend(fontsize=8, frameon=False)


def draw_speed(axes: Axes, view: RunView) -> None:
    """Draw the first speed of the kind that the run has: MFU in percent, else tokens per second."""
    column = speed_of([view])
    scale = 1.0 if column is None else speed_scale(column)
    points = [] if column is None else points_of(view, column.name)
    style_axes(axes, speed_title(column))
    if points:
        _plot(axes, [(x, value * scale) for x, value in points], view, label="speed")
        axes.set_ylim(bottom=0)
    else:
        empty_axes(axes, waiting_text(view) or "no speed")


def draw_waterfall(axes: Axes, view: RunView, *, now_s: float) -> None:
    """Draw the start-up phases as bars from the submit on, labelled with their seconds."""
    style_axes(axes, f"start-up, s ({view.warmth.short})" if view.warmth else "start-up, s")
    spans, _ = split_phases(view)
    if not spans:
        empty_axes(axes, "no phase yet")
        return
    begin_s = min(span.begin_s for span in spans)
    width_s = max(until_s(span, now_s=now_s) for span in spans) - begin_s
    for row, span in enumerate(spans):
        start, end = span.begin_s - begin_s, until_s(span, now_s=now_s) - begin_s
        axes.barh(row, max(end - start, width_s / 300), left=start, height=0.65, color=LINE)
        text = span_text(span, now_s=now_s)
        x, align, text_color = _label_place(start, end, width_s)
        axes.text(x, row, text, ha=align, va="center", fontsize=7, color=text_color)
    axes.set_yticks(range(len(spans)), [span.name.replace("_", " ") for span in spans])
    axes.set_ylim(len(spans) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def _label_place(start: float, end: float, width_s: float) -> tuple[float, str, str]:
    """Return x, alignment and colour of a bar's label: behind it, else before it, else in it."""
    gap = width_s * 0.01
    if end <= width_s * 0.75:
        return end + gap, "left", "#333333"
    if start >= width_s * 0.25:
        return start - gap, "right", "#333333"
    return end - gap, "right", "white"


def rows(
    view: RunView, record: RunRecord | None = None, *, title: str = ""
) -> list[tuple[str, str]]:
    """Return the table's lines: label and value."""
    lines = [("state", view.state.capitalize())]
    if record is not None:
        about = describe(record)
        named = [("run", called(record, title=title)), *([("what", about)] if about else [])]
        lines = [*named, *lines]
    if not view.is_terminal and state_text(view):
        lines.append(("reason", state_text(view)))
    if view.attempt > 1:
        lines.append(("attempt", str(view.attempt)))
    lines += [("progress", progress_text(view) or fmt.DASH)]
    took_s = elapsed_s(view)
    if took_s is not None:
        lines.append(("duration", fmt.seconds(took_s)))
    lines.append(("processes", processes_text(view) or fmt.DASH))
    lines += [(figure.label, figure.text) for figure in compared_figures(view)]
    lines += [(output.label, output.path) for output in shown_outputs(view.outputs)]
    lines += [(event.name, event.url or event.path) for event in view.trackers]
    return lines


def table_html(view: RunView, record: RunRecord | None = None, *, title: str = "") -> str:
    """Return figures and outputs; of a failed run also what happened and what to do."""
    cells = "".join(
        f'<tr><th style="{_CELL};font-weight:normal;opacity:.75">{escape(label)}</th>'
        f'<td style="{_CELL}">{escape(value)}</td></tr>'
        for label, value in rows(view, record, title=title)
    )
    return f"{_trouble_html(view)}<table>{cells}</table>{_samples_html(view)}"


def _samples_html(view: RunView) -> str:
    """Return the newest samples, every text escaped; nothing without samples."""
    samples = sample_table(view)
    if not samples.rows:
        return ""
    heads = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in samples.columns)
    style = f"{_CELL};vertical-align:top;white-space:pre-wrap"
    body = "".join(
        "<tr>" + "".join(f'<td style="{style}">{escape(text)}</td>' for text in row) + "</tr>"
        for row in samples.rows
    )
    return (
        f"<p><b>Samples</b> {escape(samples.at)}</p>"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    )


def _trouble_html(view: RunView) -> str:
    parts = []
    messages = {f.message for f in view.failures}
    if view.message and view.message not in messages:
        parts.append(_message_html(view.state.capitalize(), view.message, view.remedy))
    for event in view.failures:
        place = f" at {event.file}:{event.line}" if event.file else ""
        parts.append(_message_html(f"{event.error}{place}", event.message, event.remedy))
        if event.traceback:
            text = escape(event.traceback.strip())
            parts.append(f"<details><summary>Traceback</summary><pre>{text}</pre></details>")
    return "".join(parts)


def _message_html(head: str, message: str, remedy: str) -> str:
    todo = f"<br><b>Try:</b> {escape(remedy)}" if remedy else ""
    return f"<p><b>{escape(head)}</b>: {escape(message)}{todo}</p>"


def text(view: RunView, record: RunRecord | None = None, *, title: str = "") -> str:
    """Return the run as plain text, for terminals and `text/plain`."""
    lines = rows(view, record, title=title)
    width = max(len(label) for label, _ in lines)
    body = [f"{label:<{width}}  {value}" for label, value in lines]
    body += _sample_lines(view)
    for event in view.failures:
        place = f" at {event.file}:{event.line}" if event.file else ""
        body.append(f"{event.error}{place}: {event.message}")
        if event.remedy:
            body.append(f"  Try: {event.remedy}")
    if view.message and view.message not in {f.message for f in view.failures}:
        body.append(view.message + (f"\n  Try: {view.remedy}" if view.remedy else ""))
    return inert("\n".join(body))


def _sample_lines(view: RunView) -> list[str]:
    samples = sample_table(view)
    lines = [f"samples {samples.at}"] if samples.rows else []
    for row in samples.rows:
        fields = zip(samples.columns, row, strict=True)
        lines += [f"  {name}: {fmt.one_line(text, _SAMPLE_WIDTH)}" for name, text in fields]
        lines.append("")
    return lines


def open_phase(view: RunView) -> str | None:
    """Return the phase in progress during the steps, such as `evaluate` or `save`."""
    open_spans = [span for span in view.phases() if span.end_s is None and not view.is_terminal]
    return open_spans[-1].name.replace("_", " ") if open_spans else None


def one_line(view: RunView, *, now_s: float | None = None) -> str:
    """Return `Running, step 40 of 225, loss 1.2345`: what a log or an empty output cell shows."""
    now_s = time.time() if now_s is None else now_s
    parts: list[Any] = [view.state.capitalize()]
    if view.state in ("QUEUED", "RESTARTING"):
        parts.append(state_text(view))
    elif view.rows:
        parts += [progress_text(view)]
        parts += [_short(figure) for figure in figures(view) if _is_known_and_short(figure)]
        time_left = left_text(view.time_left(now_s))
        if time_left:
            parts.append(time_left)
        if state_text(view):
            parts.append(state_text(view))
    elif waiting_text(view):
        parts += [waiting_text(view, now_s=now_s), *filter(None, [state_text(view)])]
    return ", ".join(parts)


def name_and_line(view: RunView, record: RunRecord, *, title: str = "") -> tuple[str, str]:
    """Return what a run is called, and `one_line` of it."""
    return called(record, title=title), one_line(view)


def _is_known_and_short(figure: FigureValue) -> bool:
    return figure.listed and figure.text != fmt.DASH


def _short(figure: FigureValue) -> str:
    """Return `loss 1.2345`; a rate carries its unit as its label: `123 tokens/s`."""
    if figure.unit == "per_second":
        return f"{figure.text} {figure.label}"
    return f"{figure.label} {figure.text}"
