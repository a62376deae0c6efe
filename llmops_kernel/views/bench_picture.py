"""The picture of `llmops bench loop`: where the seconds go, warm and cold, and how they vary."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from llmops_kernel.metrics.events import PHASES
from llmops_kernel.views import format as fmt
from llmops_kernel.views.bench_figures import BETWEEN, KINDS, LoopFigures, Side
from llmops_kernel.views.static_run import GREY, style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR, DOTS = 0.5, 0.42
# One a start-up phase; neighbours in the bar differ in hue as well as in tone.
_PALETTE = (
    *("#1565c0", "#ef6c00", "#2e7d32", "#c62828", "#6a1b9a", "#00838f", "#9e9d24"),
    *("#4e342e", "#37474f", "#ad1457", "#00c853", "#0288d1", "#f9a825", "#558b2f", "#5e35b1"),
)
_NARROW = 0.035
"""Fraction of the axes' width; a narrower phase does not show its seconds."""


def render_png(figures: LoopFigures, *, title: str = "") -> bytes:
    """Return a picture with a bar of median phases per kind and a dot per run above it.

    White background, 1100 x 400 px.
    """
    from matplotlib.figure import Figure  # 0.3 s to import

    figure = Figure(figsize=(11, 4), dpi=100, layout="constrained", facecolor="white")
    axes = figure.subplots()
    style_axes(axes, _headline(figures))
    axes.grid(visible=False, axis="y")
    shown = [(kind, side) for kind in KINDS if (side := getattr(figures, kind)).runs_s]
    longest_s = max((max(*side.runs_s, sum(side.phases.values())) for _, side in shown), default=1)
    colors = _colors(figures.phase_names)
    for row, (_, side) in enumerate(shown):
        _bar(axes, row, side, colors=colors, longest_s=longest_s)
        _dots(axes, row, side)
    axes.set_yticks(range(len(shown)), [_label(kind, side) for kind, side in shown], fontsize=9)
    axes.set_ylim(len(shown) - 0.45, -0.75)
    axes.set_xlim(0, longest_s * 1.04)
    axes.set_xlabel("seconds since submit", fontsize=8)
    _legend(axes, figures, colors)
    if title:
        figure.suptitle(fmt.ellipsis(title, 110), fontsize=10, parse_math=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _headline(figures: LoopFigures) -> str:
    text = "submit to first step: median of each phase, a dot for each run"
    return text if figures.ratio is None else f"{text}; cold / warm = {figures.ratio:.1f}"


def _label(kind: str, side: Side) -> str:
    return f"{kind}\nmedian {fmt.seconds(side.median_s)}\nof {len(side.runs_s)}"


def _colors(names: list[str]) -> dict[str, str]:
    """Return the colours: a phase has the same one in each picture."""
    known = dict(zip(PHASES, _PALETTE, strict=True)) | {BETWEEN: "#c4c4c4"}
    return {name: known.get(name, GREY) for name in names}


def _bar(axes: Axes, row: int, side: Side, *, colors: dict[str, str], longest_s: float) -> None:
    left_s = 0.0
    for name, phase_s in side.phases.items():
        axes.barh(row, phase_s, left=left_s, height=BAR, color=colors[name], edgecolor="white")
        if phase_s > longest_s * _NARROW:
            text = f"{phase_s:.1f}"
            center = (left_s + phase_s / 2, row)
            axes.text(*center, text, ha="center", va="center", fontsize=7, color="white")
        left_s += phase_s


def _dots(axes: Axes, row: int, side: Side) -> None:
    """Above the bar, so that they hide nothing; the median as a line through both."""
    height = row - DOTS
    axes.plot(side.runs_s, [height] * len(side.runs_s), "o", color="#333333", markersize=4)
    assert side.median_s is not None
    axes.plot([side.median_s] * 2, [height - 0.08, row + BAR / 2], color=GREY, linewidth=1)


def _legend(axes: Axes, figures: LoopFigures, colors: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(color=colors[n], label=n.replace("_", " ")) for n in figures.phase_names]
    axes.legend(
        handles=patches,
        fontsize=8,
        frameon=False,
        ncols=7,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.13),
    )
