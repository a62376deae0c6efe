"""Results of `llmops bench score`: the figures, what they cost for N rows, and the picture."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from llmops_kernel.views import format as fmt
from llmops_kernel.views.static_run import style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_STRAIGHT = 0.05
"""A curve that stays this close to the straight line from its start to its top has no knee: noise
alone gives as much. Share of the range."""


def knee(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Return the x of the knee; None for a curve without one, or with fewer than three points.

    `xs` must rise.
    """
    if len(xs) < 3 or max(ys) <= ys[0]:
        return None
    span_x, span_y = xs[-1] - xs[0], max(ys) - ys[0]
    above = [(y - ys[0]) / span_y - (x - xs[0]) / span_x for x, y in zip(xs, ys, strict=True)]
    best = max(range(len(xs)), key=above.__getitem__)  # Of equal ones the first: it costs less.
    return xs[best] if above[best] > _STRAIGHT else None


# --- Numbers of `llmops bench score`, as they are computed, saved and read again. Pure ---


@dataclass(frozen=True, kw_only=True)
class ScoreMeasured:
    """A measured run of the benchmark."""

    replicas: int
    batch_size: int
    run_id: str
    output_tokens_per_second: float
    """Rate of all replicas together, from a loaded engine to the last row."""
    prompt_tokens_per_second: float
    rows_per_second: float


class _Saved(BaseModel):
    model_config = ConfigDict(frozen=True)


class Point(_Saved):
    """The medians of one batch size with one number of replicas."""

    replicas: int
    batch_size: int
    """Sequences that one replica works on at once."""
    output_tokens_per_second: float
    """Rate of all replicas together."""
    prompt_tokens_per_second: float
    rows_per_second: float
    runs: tuple[float, ...]
    """Output tokens per second of each run."""


class ScoreSetting(_Saved):
    """Setting of a measurement: model, engine, cluster."""

    name: str
    """Name of the config."""
    model: str
    engine: str
    rows: int
    """Rows of each run."""
    max_tokens: int
    tensor_parallel: int = 1
    cluster: str = ""
    num_cpus: float | None = None
    """CPUs of the cluster."""
    num_gpus: float | None = None
    """GPUs of the cluster; 0: the engine ran on CPUs."""
    time: datetime


class ScoreFigures(_Saved):
    """The result of a benchmark."""

    setting: ScoreSetting
    points: tuple[Point, ...] = ()

    @property
    def replicas(self) -> tuple[int, ...]:
        """Return the numbers of replicas that were measured."""
        return tuple(sorted({point.replicas for point in self.points}))

    def curve(self, replicas: int) -> tuple[Point, ...]:
        """Return the points of one number of replicas, in the order of the batch sizes."""
        points = [point for point in self.points if point.replicas == replicas]
        return tuple(sorted(points, key=lambda point: point.batch_size))

    def knee(self, replicas: int) -> Point | None:
        """Return the point after which larger batches bring little; None if there is none."""
        points = self.curve(replicas)
        batch_size = knee(
            [point.batch_size for point in points],
            [point.output_tokens_per_second for point in points],
        )
        return next((point for point in points if point.batch_size == batch_size), None)

    def advised(self, replicas: int) -> Point | None:
        """Return the knee, else the fastest point; None where nothing was measured."""
        points = self.curve(replicas)
        fastest = max(points, key=lambda point: point.output_tokens_per_second, default=None)
        return self.knee(replicas) or fastest


def points_of(measurements: Iterable[ScoreMeasured]) -> tuple[Point, ...]:
    """Return the medians of runs with equal replicas and batch size."""
    groups: dict[tuple[int, int], list[ScoreMeasured]] = {}
    for measurement in measurements:
        groups.setdefault((measurement.replicas, measurement.batch_size), []).append(measurement)
    return tuple(_point(runs) for _, runs in sorted(groups.items()))


def _point(runs: list[ScoreMeasured]) -> Point:
    return Point(
        replicas=runs[0].replicas,
        batch_size=runs[0].batch_size,
        output_tokens_per_second=median(run.output_tokens_per_second for run in runs),
        prompt_tokens_per_second=median(run.prompt_tokens_per_second for run in runs),
        rows_per_second=median(run.rows_per_second for run in runs),
        runs=tuple(run.output_tokens_per_second for run in runs),
    )


# --- Time and cost of a table, from the results of `llmops bench score` ---


@dataclass(frozen=True, kw_only=True)
class PlanLine:
    """Time and cost of the table with one number of replicas."""

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
    """Price of one unit."""
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


# --- The picture of `llmops bench score`: output tokens per second over batch sizes ---


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
