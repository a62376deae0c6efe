"""What `llmops bench score` and `llmops bench plan` print, as rich renderables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmops_kernel.cli.console import table
from llmops_kernel.cli.fitting_table import FittingTable
from llmops_kernel.views import format as fmt

if TYPE_CHECKING:
    from llmops_kernel.views.score_bench import PlanLine, Point, ScoreFigures, ScorePlan


def score_table(figures: ScoreFigures) -> FittingTable:
    """Return a line a batch size and number of replicas, with the knees marked."""
    rows = []
    for replicas in figures.replicas:
        points, knee = figures.curve(replicas), figures.knee(replicas)
        rows += [_row(point, points[0], is_knee=point == knee) for point in points]
    names = ["replicas", "batch size", "out tokens/s", "in tokens/s", "rows/s", "x first", ""]
    made = table(names, rows, right=names[:-1])
    made.caption = (
        "Medians, all replicas together. Knee: larger batches bring little more (Kneedle)."
    )
    return made


def _row(point: Point, first: Point, *, is_knee: bool) -> list[str]:
    gain = point.output_tokens_per_second / (first.output_tokens_per_second or float("nan"))
    return [
        str(point.replicas),
        str(point.batch_size),
        fmt.number(point.output_tokens_per_second),
        fmt.number(point.prompt_tokens_per_second),
        fmt.number(point.rows_per_second),
        fmt.DASH if gain != gain else f"{gain:.2f}",
        "knee" if is_knee else "",
    ]


def plan_table(plan: ScorePlan) -> FittingTable:
    """Return a line a number of replicas, with the assumptions below it."""
    names = ["replicas", "batch size", "rows/s", "wall time", f"{plan.unit}-hours", "cost", ""]
    made = table(names, [_plan_row(line) for line in plan.lines], right=names[:-1])
    made.caption = f"{plan.rows:,} rows; no knee: the fastest batch size"
    return made


def _plan_row(line: PlanLine) -> list[str]:
    return [
        str(line.replicas),
        str(line.batch_size),
        fmt.number(line.rows_per_second),
        fmt.seconds(line.wall_s),
        fmt.number(line.unit_hours),
        fmt.money(line.money),
        "knee" if line.is_knee else "no knee",
    ]
