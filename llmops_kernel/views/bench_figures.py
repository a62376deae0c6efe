"""Numbers of `llmops bench loop`, computed from the runs' journals. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

from llmops_kernel.metrics.events import PHASES
from llmops_kernel.store.journal.view import RunView

Kind = Literal["warm", "cold"]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One re-submission."""

    kind: Kind
    first_step_s: float
    """Seconds from the submit to the end of the first optimizer step."""
    phases: Mapping[str, float]
    """Seconds up to the begin of the next; they add up to `first_step_s`."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """All runs of one kind; seconds, to a thousandth."""

    median_s: float | None
    """Median of the runs; None without one."""
    runs_s: tuple[float, ...]
    """Seconds from submit to first step, in the order of the runs."""
    phases: Mapping[str, float]
    """Median seconds of each phase, in the order of the start-up. Medians need not add up."""

    @classmethod
    def of(cls, runs: list[Measured]) -> Side:
        """Return the medians; a phase that a run did not have took it no time."""
        names = in_order(name for run in runs for name in run.phases)
        medians = {name: median([run.phases.get(name, 0.0) for run in runs]) for name in names}
        runs_s = [run.first_step_s for run in runs]
        return cls(
            median_s=round(median(runs_s), 3) if runs_s else None,
            runs_s=tuple(round(run_s, 3) for run_s in runs_s),
            phases={name: round(phase_s, 3) for name, phase_s in medians.items()},
        )


@dataclass(frozen=True, kw_only=True)
class LoopFigures:
    """Both sides of the bench."""

    warm: Side
    cold: Side
    ratio: float | None
    """Cold median / warm median, to a thousandth; None unless both are known."""

    @classmethod
    def of(cls, runs: Sequence[Measured]) -> LoopFigures:
        warm, cold = (
            Side.of([run for run in runs if run.kind == kind]) for kind in ("warm", "cold")
        )
        ratio = None
        if warm.median_s and cold.median_s is not None:
            ratio = round(cold.median_s / warm.median_s, 3)
        return cls(warm=warm, cold=cold, ratio=ratio)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def in_order(phases: Iterable[str]) -> list[str]:
    """Return the names, each once, in the order of the start-up; other phases come last."""
    names = set(phases)
    return [name for name in PHASES if name in names] + sorted(names.difference(PHASES))


def phase_shares(view: RunView) -> dict[str, float]:
    """Return the seconds from the begin of each phase to that of the next, up to the first step.

    They add up to `view.submit_to_first_step_s`; empty while that is not known.
    """
    total_s, spans = view.submit_to_first_step_s, view.phases()
    if total_s is None or not spans:
        return {}
    until_s = spans[0].begin_s + total_s
    shares: dict[str, float] = {}
    for span, after in itertools.zip_longest(spans, spans[1:]):
        end_s = until_s if after is None else min(after.begin_s, until_s)
        if span.begin_s < until_s:
            shares[span.name] = shares.get(span.name, 0.0) + end_s - span.begin_s
    return shares


def misfit(kind: Kind, view: RunView, *, num_workers: int) -> str:
    """Return why a journal does not show that all of a run started in this way; empty: it does."""
    warmth = view.warmth
    reported = 0 if warmth is None else warmth.warm + warmth.cold
    if warmth is not None and (warmth.cold if kind == "warm" else warmth.warm):
        return warmth.text
    processes = 1 + num_workers  # The driver is one.
    if reported < processes:
        return f"only {reported} of its {processes} processes reported how they were started"
    return ""
