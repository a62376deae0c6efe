"""Numbers of `llmops bench loop`, computed from the runs' journals. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from llmops_kernel.metrics.events import PHASES
from llmops_kernel.store.journal.view import RunView

Kind = Literal["warm", "cold"]
BETWEEN = "between_phases"
"""Time before the first step that no phase accounts for."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One re-submission."""

    kind: Kind
    first_step_s: float
    """Seconds from the submit to the end of the first optimizer step."""
    phases: Mapping[str, float]
    """Seconds; they add up to `first_step_s`."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """All runs of one kind."""

    runs_s: tuple[float, ...]
    """Seconds from submit to first step, in the order of the runs."""
    phases: Mapping[str, float]
    """Median seconds of each phase, in the order of the start-up. Medians need not add up."""

    @classmethod
    def of(cls, runs: list[Measured]) -> Side:
        """Return the medians; a phase that a run did not have took it no time."""
        names = in_order(name for run in runs for name in run.phases)
        return cls(
            runs_s=tuple(run.first_step_s for run in runs),
            phases={name: median([run.phases.get(name, 0.0) for run in runs]) for name in names},
        )

    @property
    def median_s(self) -> float | None:
        """Return the median; None without a run."""
        return median(self.runs_s) if self.runs_s else None

    def as_dict(self) -> dict[str, Any]:
        median_s = None if self.median_s is None else round(self.median_s, 3)
        phases = {name: round(phase_s, 3) for name, phase_s in self.phases.items()}
        return {
            "median_s": median_s,
            "runs_s": [round(s, 3) for s in self.runs_s],
            "phases": phases,
        }


@dataclass(frozen=True, kw_only=True)
class LoopFigures:
    """Both sides of the bench."""

    warm: Side
    cold: Side

    @classmethod
    def of(cls, measured: Iterable[Measured]) -> LoopFigures:
        runs = list(measured)
        warm, cold = ([run for run in runs if run.kind == kind] for kind in ("warm", "cold"))
        return cls(warm=Side.of(warm), cold=Side.of(cold))

    @property
    def ratio(self) -> float | None:
        """Return cold median / warm median; None unless both are known."""
        if not self.warm.median_s or self.cold.median_s is None:
            return None
        return self.cold.median_s / self.warm.median_s

    def as_dict(self) -> dict[str, Any]:
        ratio = None if self.ratio is None else round(self.ratio, 3)
        return {"warm": self.warm.as_dict(), "cold": self.cold.as_dict(), "ratio": ratio}


def in_order(phases: Iterable[str]) -> list[str]:
    """Return the names, each once, in the order of the start-up; other phases come last."""
    return sorted(set(phases), key=_place)


def _place(name: str) -> tuple[int, str]:
    return (PHASES.index(name) if name in PHASES else len(PHASES)), name


def phase_shares(view: RunView) -> dict[str, float]:
    """Return the seconds of each phase from submit to first step, no instant counted twice.

    Where phases overlap, the later one has the time: what it waits for must be over, whatever
    another host's clock says or an end that was never reported. The shares add up to
    `view.submit_to_first_step_s`; empty while that is not known.
    """
    total_s = view.submit_to_first_step_s
    spans = view.phases()
    if total_s is None or not spans:
        return {}
    begun_s = min(span.begin_s for span in spans)
    until_s = begun_s + total_s
    cuts = {begun_s, until_s}
    for span in spans:
        cuts |= {span.begin_s, until_s if span.end_s is None else span.end_s}
    shares: dict[str, float] = {}
    for left, right in itertools.pairwise(sorted(cut for cut in cuts if cut <= until_s)):
        under_way = [s for s in spans if s.begin_s <= left and (s.end_s is None or s.end_s > left)]
        name = max((span.name for span in under_way), key=_place) if under_way else BETWEEN
        shares[name] = shares.get(name, 0.0) + right - left
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
