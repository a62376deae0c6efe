"""Numbers of `llmops bench loop`, computed from the runs' journals. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from llmops_kernel.metrics.events import PHASES
from llmops_kernel.store.journal.view import RunView

Kind = Literal["warm", "cold"]
KINDS: tuple[Kind, Kind] = ("warm", "cold")
BETWEEN = "between_phases"
"""Time before the first step that no phase accounts for."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One re-submission."""

    kind: Kind
    run_id: str
    first_step_s: float
    """Seconds from the submit to the end of the first optimizer step."""
    phases: Mapping[str, float]
    """Seconds; they add up to `first_step_s`."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """All runs of one kind."""

    runs_s: tuple[float, ...] = ()
    """Seconds from submit to first step, in the order of the runs."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Median seconds of each phase, in the order of the start-up. Medians need not add up."""

    @property
    def median_s(self) -> float | None:
        """Return the median; None without a run."""
        return median(self.runs_s) if self.runs_s else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "median_s": None if self.median_s is None else round(self.median_s, 3),
            "runs_s": [round(run_s, 3) for run_s in self.runs_s],
            "phases": {name: round(phase_s, 3) for name, phase_s in self.phases.items()},
        }


@dataclass(frozen=True, kw_only=True)
class LoopFigures:
    """Both sides of the bench."""

    warm: Side
    cold: Side

    @property
    def ratio(self) -> float | None:
        """Cold median / warm median; None unless both are known."""
        if not self.warm.median_s or self.cold.median_s is None:
            return None
        return self.cold.median_s / self.warm.median_s

    @property
    def phase_names(self) -> list[str]:
        """Names of both sides' phases, in the order of the start-up."""
        return _in_order({*self.warm.phases, *self.cold.phases})

    def as_dict(self) -> dict[str, Any]:
        ratio = None if self.ratio is None else round(self.ratio, 3)
        return {"warm": self.warm.as_dict(), "cold": self.cold.as_dict(), "ratio": ratio}


def loop_figures(measured: Iterable[Measured]) -> LoopFigures:
    """Medians of each kind; a phase that a run did not have took it no time."""
    runs = list(measured)
    return LoopFigures(**{kind: _side([run for run in runs if run.kind == kind]) for kind in KINDS})


def _side(runs: list[Measured]) -> Side:
    names = _in_order({name for run in runs for name in run.phases})
    return Side(
        runs_s=tuple(run.first_step_s for run in runs),
        phases={name: median([run.phases.get(name, 0.0) for run in runs]) for name in names},
    )


def _in_order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (_place(name), name))


def _place(name: str) -> int:
    """Sort key: in the order of the start-up; other phases come last."""
    if name == BETWEEN:
        return len(PHASES) + 1
    return PHASES.index(name) if name in PHASES else len(PHASES)


def phase_shares(view: RunView) -> dict[str, float]:
    """Seconds of each phase from submit to first step, no instant counted twice.

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
    """Why a run's journal does not show that all of it started in this way; empty when it does."""
    warmth = view.warmth
    reported = 0 if warmth is None else warmth.warm + warmth.cold
    if warmth is not None and (warmth.cold if kind == "warm" else warmth.warm):
        return warmth.text
    processes = 1 + num_workers  # The driver is one.
    if reported < processes:
        return f"only {reported} of its {processes} processes reported how they were started"
    return ""
