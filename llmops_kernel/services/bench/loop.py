"""Submits one config warm and cold in turn and reads the times from the runs' journals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, cast

from llmops_kernel.errors import RunFailedError
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.bench.follow import Report, follow
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.services.runs import Run
from llmops_kernel.services.submission import cold_start, from_config, submit
from llmops_kernel.views import format as fmt
from llmops_kernel.views.bench_figures import Kind, Measured, misfit, phase_shares

if TYPE_CHECKING:
    from llmops_kernel.config.models.section import RunConfig
    from llmops_kernel.store.journal.training_view import TrainingView

COLD_REASON = "requested by llmops bench"


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One of the benchmark's runs."""

    kind: Kind
    number: int | None
    """From 1, over both kinds; None for a warm-up that is not counted."""


def order(kinds: Sequence[Kind], *, runs: int) -> Iterator[Turn]:
    """Yield one warm-up of each kind, then the kinds in turn, so that a drift affects both."""
    for kind in kinds:
        yield Turn(kind=kind, number=None)
    numbers = count(1)
    for _ in range(runs):
        for kind in kinds:
            yield Turn(kind=kind, number=next(numbers))


@dataclass(kw_only=True)
class LoopBench:
    """Submits and measures; `measured` keeps what it has when it is interrupted."""

    cluster: Cluster
    backend: Backend
    config: RunConfig
    workspace: Path
    kinds: Sequence[Kind]
    runs: int
    """Number of runs of each kind."""
    report: Report
    measured: list[Measured] = field(default_factory=list)

    def run(self) -> None:
        """Run it. Raises RunFailedError for the first run that fails, with its remedy."""
        for turn in order(self.kinds, runs=self.runs):
            self._one(turn)

    def _one(self, turn: Turn) -> None:
        run = self._submit(turn.kind)
        follow(run, self.cluster, self.report)
        found = read(run, turn.kind)
        why = misfit(turn.kind, _view(run), num_workers=self.config.worker_processes)
        self.report(self._line(turn, found, why))
        if turn.number is not None and not why:
            self.measured.append(found)

    def _submit(self, kind: Kind) -> Run:
        wanted = replace(
            from_config(self.config, workspace=self.workspace),
            env_vars=cold_start(COLD_REASON) if kind == "cold" else None,
            hidden=True,
        )
        record = submit(self.cluster, wanted)
        return Run(self.backend, record.run_id, provider=self.cluster.provider)

    def _line(self, turn: Turn, found: Measured, why: str) -> str:
        total = len(self.kinds) * self.runs
        number = turn.number
        label = "warm-up" if number is None else f"{number}/{total}"
        line = f"{label:>7}  {found.kind}  {fmt.seconds(found.first_step_s):>7}  {found.run_id}"
        if why:
            line += f"\n         not counted as {found.kind}: {why}"
        return line


def read(run: Run, kind: Kind) -> Measured:
    """Return the times in the journal of an ended run. Raises RunFailedError if it failed."""
    view = _view(run)
    first_step_s = view.submit_to_first_step_s
    if view.state != "SUCCEEDED" or first_step_s is None:
        missing = "no step was reported" if view.state == "SUCCEEDED" else "no reason was reported"
        reason = view.message or missing
        raise RunFailedError(
            f"Run {run.id} of the benchmark ({kind}) {view.state}: {reason}",
            remedy=view.remedy or f"llmops show {run.id}",
        )
    return Measured(kind=kind, run_id=run.id, first_step_s=first_step_s, phases=phase_shares(view))


def _view(run: Run) -> TrainingView:
    return cast("TrainingView", run.view)
