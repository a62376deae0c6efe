"""The picture of `llmops bench score`: output tokens per second over batch sizes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from llmops_kernel.views import format as fmt
from llmops_kernel.views.score_bench.figures import ScoreFigures
from llmops_kernel.views.static_run import style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS = ("#1565c0", "#ef6c00", "#2e7d32", "#c62828", "#6a1b9a")


def render_png(figures: ScoreFigures, *, title: str = "") -> bytes:
    """Return a picture with a line a number of replicas, a dot a run, and the knees marked.

    White background, 900 x 500 px.
    """
    from matplotlib.figure import Figure  # 0.3 s to import

    figure = Figure(figsize=(9, 5), dpi=100, layout="constrained", facecolor="white")
    axes = figure.subplots()
    style_axes(axes, "output tokens per second: medians as lines, a dot for each run")
    for place, replicas in enumerate(figures.replicas):
        _curve(axes, figures, replicas, _COLORS[place % len(_COLORS)])
    sizes = sorted({point.batch_size for point in figures.points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("batch size of one replica (sequences at once)", fontsize=8)
    axes.set_ylabel("output tokens/s, all replicas", fontsize=8)
    axes.legend(fontsize=8, frameon=False, loc="upper left")
    if title:
        figure.suptitle(fmt.ellipsis(title, 100), fontsize=10, parse_math=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _curve(axes: Axes, figures: ScoreFigures, replicas: int, color: str) -> None:
    points = figures.curve(replicas)
    xs = [point.batch_size for point in points]
    ys = [point.output_tokens_per_second for point in points]
    label = "1 replica" if replicas == 1 else f"{replicas} replicas"
    axes.plot(xs, ys, "-", color=color, linewidth=1.5, label=label)
    for point in points:
        axes.plot([point.batch_size] * len(point.runs), point.runs, ".", color=color, markersize=5)
    knee = figures.knee(replicas)
    if knee is not None:
        position = (knee.batch_size, knee.output_tokens_per_second)
        axes.plot(*position, "o", color=color, markersize=11, fillstyle="none", markeredgewidth=1.5)
        text = f"knee: {knee.batch_size}"
        axes.annotate(
            text, position, xytext=(8, -16), textcoords="offset points", fontsize=8, color=color
        )
