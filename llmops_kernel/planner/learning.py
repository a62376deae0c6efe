"""Corrections of planned time and memory, learned from what earlier runs measured.

The time of a step is taken to be a sum of what each kind of work costs (`planner.speed.Work`):
FLOPs, bytes of other operations, calls, weights that are updated, bytes that are sent. The costs
on a device are fitted to relative errors by least squares: none is negative, and each is drawn to
one common factor of its assumption (ridge), so that a single run gives that factor and nothing
else. Runs of one family with one attention kernel share a factor besides, drawn to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from operator import mul
from statistics import median
from typing import Any, Final

from llmops_kernel.hardware.accelerators import find
from llmops_kernel.planner.memory import Memory
from llmops_kernel.planner.speed import Rates, Work

KINDS: Final = tuple(field.name for field in fields(Work))
MOST_RUNS: Final = 64
"""So many newest runs of a device teach."""
_RIDGE: Final = 0.01
"""A cost that is twice or none of the common factor weighs as a run that is wrong by a tenth."""
_FAMILY: Final = 1.0
"""A family's factor is drawn to 1 as if by so many runs."""
_ROUNDING: Final = 1e-12

Costs = tuple[float, ...]
"""Seconds of a unit of each kind of work, in the order of `KINDS`."""


def device_key(name: str, *, dtype: str, threads: int | None) -> str:
    """Return the name under which runs are learned from: `H100 SXM, bfloat16`.

    `dtype`: of matrix products, `tf32` among them. `threads`: of a worker on CPUs.
    """
    accelerator = find(name)
    words = [name if accelerator is None else accelerator.name]
    if threads is not None:
        words.append("1 thread" if threads == 1 else f"{threads} threads")
    return ", ".join((*words, dtype))


@dataclass(frozen=True, kw_only=True)
class PastRun:
    """What one run was planned to do, and what it took."""

    family: str
    attention: str
    device: str
    work: Work
    step_s: float
    """Seconds of a step as planned, at the rate that was measured."""
    peak_flops: float | None = None
    """Of one device, as that run knew it."""
    memory: Memory | None = None
    """Planned, on one device."""
    peak_memory_bytes: float | None = None

    def is_like(self, family: str, attention: str) -> bool:
        """Return whether it shares a factor with others of a family and an attention kernel."""
        return (self.family, self.attention) == (family, attention)


@dataclass(frozen=True, kw_only=True)
class Errors:
    """How wrong predictions of runs were, each made from the runs before it."""

    runs: int
    """From which is learned."""
    median: float | None = None
    """Of the sizes of relative errors; None before the second run."""

    @classmethod
    def of(cls, predictions: Sequence[tuple[float, float]], *, runs: int) -> Errors:
        """Take pairs of what was predicted and what was measured."""
        sizes = [abs(predicted / measured - 1) for predicted, measured in predictions]
        return cls(runs=runs, median=median(sizes) if sizes else None)


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What the runs on one device teach for one family and attention kernel."""

    device: str
    costs: Costs
    speed: Errors
    of_family: int
    """Runs among them of the family with the attention kernel."""
    peak_flops: float | None = None
    moving: float = 1.0
    """Factor of activations and logits, which is what a plan of memory is least sure of."""
    memory: Errors = Errors(runs=0)

    def seconds(self, work: Work) -> dict[str, float]:
        """Return the time of one step by kind of work."""
        return dict(zip(KINDS, _parts(work, self.costs), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: runs, errors and factors are numbers, errors 0..1."""
        return {
            "device": self.device,
            "runs": self.speed.runs,
            "of_family": self.of_family,
            "speed_error": self.speed.median,
            "memory_runs": self.memory.runs,
            "memory_error": self.memory.median,
            "moving_memory": self.moving,
        }

    def corrected(self, planned: Memory) -> Memory:
        """Return planned memory with the factor of what lives for a step."""
        return replace(
            planned,
            activations=planned.activations * self.moving,
            logits=planned.logits * self.moving,
        )


def learn(
    runs: Sequence[PastRun],
    *,
    family: str,
    attention: str,
    device: str,
    on_gpu: bool,
    rates: Rates | None = None,
) -> Learned | None:
    """Return what past runs teach, of which the oldest comes first; None without one on the device.

    `rates`: what the device is assumed to do; None: not known.
    """
    of_device = [run for run in runs if run.device == device][-MOST_RUNS:]
    if not of_device:
        return None
    peaks = [run.peak_flops for run in of_device if run.peak_flops is not None]
    rates = rates or Rates(peak_flops=max(peaks, default=None))
    assumed = assumed_costs(rates, on_gpu=on_gpu)
    *before, costs = _growing(of_device, assumed)
    predictions = [
        (_total(run.work, _of_family(of_device[:number], costs_before, run.family, run.attention)),
         run.step_s)
        for number, (run, costs_before) in enumerate(zip(of_device[1:], before, strict=True), 1)
    ]  # fmt: skip
    moving, memory = _memory(of_device, family, attention)
    return Learned(
        device=device,
        costs=_of_family(of_device, costs, family, attention),
        speed=Errors.of(predictions, runs=len(of_device)),
        of_family=sum(run.is_like(family, attention) for run in of_device),
        peak_flops=rates.peak_flops,
        moving=moving,
        memory=memory,
    )


# --- Time ---


def assumed_costs(rates: Rates, *, on_gpu: bool) -> Costs:
    """Return costs before anything is learned; only their ratios matter after the first run.

    Of a GPU: matrix products at 0.6 of the peak, others at 0.8 of the memory's bandwidth, 5 us a
    launch. Of a CPU: products at 0.8 of the measured peak; figures of a small server for the rest,
    10 GB/s (5 GB/s of logits), 15 us a call of PyTorch, 1 GB/s between processes.
    """
    if on_gpu:
        bandwidth = 0.8 * (rates.memory_per_second or 1e12)
        return (
            1 / (0.6 * (rates.peak_flops or 1e14)), 1 / bandwidth, 1 / bandwidth, 5e-6,
            28 / bandwidth, 1 / rates.within_node,
        )  # fmt: skip
    return 1 / (0.8 * (rates.peak_flops or 1e11)), 1 / 10e9, 1 / 5e9, 15e-6, 28 / 10e9, 1 / 1e9


def _parts(work: Work, costs: Costs) -> list[float]:
    return [getattr(work, kind) * cost for kind, cost in zip(KINDS, costs, strict=True)]


def _total(work: Work, costs: Costs) -> float:
    return sum(_parts(work, costs))


def _growing(runs: Sequence[PastRun], assumed: Costs) -> Iterator[Costs]:
    """Yield the costs that the first run teaches, the first two, ... all."""
    size = range(len(assumed))
    squares = [[0.0 for _ in size] for _ in size]
    sums = [0.0 for _ in size]
    for run in runs:
        shares = [part / run.step_s for part in _parts(run.work, assumed)]
        for row in size:
            sums[row] += shares[row]
            for column in size:
                squares[row][column] += shares[row] * shares[column]
        factors = fitted(squares, sums, ridge=_RIDGE)
        yield tuple(cost * factor for cost, factor in zip(assumed, factors, strict=True))


def fitted(
    squares: Sequence[Sequence[float]], sums: Sequence[float], *, ridge: float
) -> list[float]:
    """Return factors f >= 0 that minimise sum (1 - f x)^2 + ridge sum (f / s - 1)^2.

    x: shares of the time of a run that its parts are assumed to take; `squares`: sum of x x^T,
    `sums`: sum of x over the runs. s: the one factor that fits all runs best. By Murty's
    least-index method (Mathematical Programming 7, 1974), which ends at the minimum.
    """
    size = range(len(sums))
    whole = sum(map(sum, squares))
    common = sum(sums) / whole if whole else 1.0
    weight = ridge / common**2
    matrix = [[squares[j][k] + weight * (j == k) for k in size] for j in size]
    right = [value + weight * common for value in sums]
    free = dict.fromkeys(size, True)
    while True:
        factors = _solved(matrix, right, [k for k in size if free[k]])
        slopes = [sum(map(mul, matrix[k], factors)) - right[k] for k in size]
        least = next((k for k in size if (factors[k] if free[k] else slopes[k]) < -_ROUNDING), None)
        if least is None:
            return [max(0.0, factor) for factor in factors]
        free[least] = not free[least]


def _solved(
    matrix: Sequence[Sequence[float]], right: Sequence[float], chosen: Sequence[int]
) -> list[float]:
    """Solve the chosen equations of a positive definite matrix; the other unknowns are 0."""
    rows = [[*(matrix[j][k] for k in chosen), right[j]] for j in chosen]
    for step, pivot in enumerate(rows):
        for row in rows[step + 1 :]:
            ratio = row[step] / pivot[step]
            for column in range(step, len(pivot)):
                row[column] -= ratio * pivot[column]
    result = [0.0 for _ in right]
    for step in reversed(range(len(chosen))):
        row = rows[step]
        known = sum(row[at] * result[chosen[at]] for at in range(step + 1, len(chosen)))
        result[chosen[step]] = (row[-1] - known) / row[step]
    return result


def _of_family(runs: Sequence[PastRun], costs: Costs, family: str, attention: str) -> Costs:
    """Return the costs times the factor of a family with an attention kernel."""
    like = [run for run in runs if run.is_like(family, attention)]
    factor = _factor([(_total(run.work, costs) / run.step_s, 1.0) for run in like])
    return tuple(cost * factor for cost in costs)


def _factor(pairs: Sequence[tuple[float, float]]) -> float:
    """Return f that minimises sum (b - f a)^2 + ridge (f - 1)^2 over pairs a, b."""
    squares = sum(a * a for a, _ in pairs)
    return (sum(a * b for a, b in pairs) + _FAMILY) / (squares + _FAMILY)


# --- Memory ---


def _memory(runs: Sequence[PastRun], family: str, attention: str) -> tuple[float, Errors]:
    """Return the factor of what lives for a step, and how wrong planned memory was.

    Compared without the context of the device and fragments, which its allocator does not report.
    """
    known: list[tuple[PastRun, float, float, float]] = []
    for run in runs:
        planned, peak = run.memory, run.peak_memory_bytes
        if planned is None or not peak:
            continue
        moving = planned.activations + planned.logits
        known.append((run, (planned.total - planned.overhead - moving) / peak, moving / peak, peak))

    def factor(before: Sequence[Any], is_like: Callable[[str, str], bool]) -> float:
        like = [
            (moves, 1 - stays)
            for run, stays, moves, _ in before
            if is_like(run.family, run.attention)
        ]
        return max(0.0, _factor(like))

    predictions = [
        ((stays + moves * factor(known[:number], run.is_like)) * peak, peak)
        for number, (run, stays, moves, peak) in enumerate(known)
        if number
    ]
    here = factor(known, lambda *pair: pair == (family, attention))
    return here, Errors.of(predictions, runs=len(known))
