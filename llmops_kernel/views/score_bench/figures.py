"""Numbers of `llmops bench score`, as they are computed, saved and read again. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from pydantic import BaseModel, ConfigDict

from llmops_kernel.metrics.knee import knee


@dataclass(frozen=True, kw_only=True)
class ScoreMeasured:
    """One run of the benchmark."""

    replicas: int
    batch_size: int
    run_id: str
    output_tokens_per_second: float
    """Of all replicas together, from a loaded engine to the last row."""
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
    """Of all replicas together."""
    prompt_tokens_per_second: float
    rows_per_second: float
    runs: tuple[float, ...]
    """Output tokens per second of each run."""


class ScoreSetting(_Saved):
    """What was measured, and on what."""

    name: str
    """Of the config."""
    model: str
    engine: str
    rows: int
    """Rows of each run."""
    max_tokens: int
    tensor_parallel: int = 1
    cluster: str = ""
    num_cpus: float | None = None
    """Of the cluster."""
    num_gpus: float | None = None
    """Of the cluster; 0: the engine ran on CPUs."""
    time: datetime


class ScoreFigures(_Saved):
    """The result of a benchmark."""

    setting: ScoreSetting
    points: tuple[Point, ...] = ()

    @property
    def replicas(self) -> tuple[int, ...]:
        """The numbers of replicas that were measured."""
        return tuple(sorted({point.replicas for point in self.points}))

    def curve(self, replicas: int) -> tuple[Point, ...]:
        """Return the points of one number of replicas, in the order of the batch sizes."""
        found = [point for point in self.points if point.replicas == replicas]
        return tuple(sorted(found, key=lambda point: point.batch_size))

    def knee(self, replicas: int) -> Point | None:
        """Return the point after which larger batches bring little; None if there is none."""
        points = self.curve(replicas)
        found = knee(
            [point.batch_size for point in points],
            [point.output_tokens_per_second for point in points],
        )
        return next((point for point in points if point.batch_size == found), None)

    def advised(self, replicas: int) -> Point | None:
        """Return the knee, else the fastest point; None where nothing was measured."""
        points = self.curve(replicas)
        fastest = max(points, key=lambda point: point.output_tokens_per_second, default=None)
        return self.knee(replicas) or fastest


def points_of(measured: Iterable[ScoreMeasured]) -> tuple[Point, ...]:
    """Return the medians of runs with equal replicas and batch size."""
    groups: dict[tuple[int, int], list[ScoreMeasured]] = {}
    for one in measured:
        groups.setdefault((one.replicas, one.batch_size), []).append(one)
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
