"""What `llmops bench loop` prints, as rich renderables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmops_kernel.cli.console import table
from llmops_kernel.cli.fitting_table import FittingTable
from llmops_kernel.views import format as fmt

if TYPE_CHECKING:
    from llmops_kernel.views.bench_figures import LoopFigures, Side


def loop_table(figures: LoopFigures) -> FittingTable:
    """Return a line a phase, then the total, its range and the ratios."""
    warm, cold = figures.warm, figures.cold
    rows = [
        _row(name.replace("_", " "), warm.phases.get(name), cold.phases.get(name))
        for name in figures.phase_names
    ]
    whole = _row("submit to first step", warm.median_s, cold.median_s)
    rows.append([f"[bold]{cell}[/]" for cell in whole])
    rows.append(["fastest – slowest", _range(warm), _range(cold), ""])
    rows.append(["runs", str(len(warm.runs_s)), str(len(cold.runs_s)), ""])
    ratio = figures.ratio
    rows.append(["cold / warm", _ratio(ratio), "", ""])
    rows.append(["warm / cold", _ratio(1 / ratio if ratio else None), "", ""])
    names = ["medians", "warm", "cold", "cold - warm"]
    made = table(names, rows, right=names[1:])
    made.caption = "Medians of phases need not add up to the median of the whole."
    return made


def _row(name: str, warm_s: float | None, cold_s: float | None) -> list[str]:
    gain = fmt.DASH if warm_s is None or cold_s is None else _signed(cold_s - warm_s)
    return [name, fmt.seconds(warm_s), fmt.seconds(cold_s), gain]


def _signed(value_s: float) -> str:
    return f"-{fmt.seconds(-value_s)}" if value_s < -0.0005 else fmt.seconds(value_s)


def _range(side: Side) -> str:
    if not side.runs_s:
        return fmt.DASH
    return f"{fmt.seconds(min(side.runs_s))} – {fmt.seconds(max(side.runs_s))}"


def _ratio(value: float | None) -> str:
    return fmt.DASH if value is None else f"{value:.2f}"
