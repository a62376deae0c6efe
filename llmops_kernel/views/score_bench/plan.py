"""How long a table takes, and what it costs, from what `llmops bench score` measured. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from llmops_kernel.views import format as fmt
from llmops_kernel.views.score_bench.figures import Point, ScoreFigures


@dataclass(frozen=True, kw_only=True)
class PlanLine:
    """What the table takes with one number of replicas."""

    replicas: int
    batch_size: int
    is_knee: bool
    """False: the curve has no knee, and this batch size was the fastest."""
    rows_per_second: float
    wall_s: float
    unit_hours: float | None
    """Hours of GPUs, or of CPUs where the engine ran on them."""
    money: float | None
    """In the currency of the price; None without a price."""


@dataclass(frozen=True, kw_only=True)
class ScorePlan:
    rows: int
    unit: Literal["GPU", "CPU"]
    price_per_hour: float | None
    """Of one unit."""
    lines: tuple[PlanLine, ...]
    assumptions: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def score_plan(
    figures: ScoreFigures, *, rows: int, price_per_hour: float | None = None
) -> ScorePlan:
    """Return the plan for that many rows, a line for each measured number of replicas."""
    unit: Literal["GPU", "CPU"] = "GPU" if figures.setting.num_gpus else "CPU"
    lines = []
    for replicas in figures.replicas:
        point = figures.advised(replicas)
        if point is not None and point.rows_per_second > 0:
            is_knee = figures.knee(replicas) is not None
            lines.append(_line(figures, point, rows, price_per_hour, is_knee=is_knee))
    return ScorePlan(
        rows=rows,
        unit=unit,
        price_per_hour=price_per_hour,
        lines=tuple(lines),
        assumptions=_assumptions(figures, unit, price_per_hour),
    )


def _line(
    figures: ScoreFigures, point: Point, rows: int, price: float | None, *, is_knee: bool
) -> PlanLine:
    wall_s = rows / point.rows_per_second
    units = _units(figures, point.replicas)
    hours = None if units is None else wall_s / 3600 * units
    return PlanLine(
        replicas=point.replicas,
        batch_size=point.batch_size,
        is_knee=is_knee,
        rows_per_second=point.rows_per_second,
        wall_s=wall_s,
        unit_hours=hours,
        money=None if hours is None or price is None else hours * price,
    )


def _units(figures: ScoreFigures, replicas: int) -> float | None:
    """Return how many GPUs, or CPUs, are paid for while the table is scored."""
    setting = figures.setting
    if setting.num_gpus:
        return replicas * setting.tensor_parallel
    return setting.num_cpus


def _assumptions(figures: ScoreFigures, unit: str, price: float | None) -> tuple[str, ...]:
    setting = figures.setting
    stated = [
        f"rates are medians measured {setting.time:%Y-%m-%d} on cluster {setting.cluster}"
        f" ({fmt.number(setting.num_cpus)} CPUs, {fmt.number(setting.num_gpus)} GPUs)",
        f"the rows are as long as the {setting.rows:,} measured ones, with answers of at most"
        f" {setting.max_tokens:,} tokens",
        "loading the engine, failures and waiting for machines are not included",
    ]
    if unit == "CPU":
        stated.append("all CPUs of the cluster are counted, whatever the number of replicas")
    stated.append(
        "no price was given (--price-per-hour), so there is no cost"
        if price is None
        else f"one {unit} costs {price:g} an hour, and is paid for only while rows are scored"
    )
    return tuple(stated)
