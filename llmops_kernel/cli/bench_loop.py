"""Re-submits one config warm and cold in turn and reads the times from the runs' journals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from llmops_kernel.errors import LLMOpsError, RunFailedError
from llmops_kernel.metrics.events import TERMINAL
from llmops_kernel.warm.plan import REFUSE_ENV_VAR
from llmops_kernel.widgets import format as fmt
from llmops_kernel.widgets.bench_figures import Kind, Measured, misfit, phase_shares

if TYPE_CHECKING:
    from llmops_kernel.api import Cluster, Run
    from llmops_kernel.config.train import TrainingConfig

COLD_REASON = "asked for by llmops bench"
_LOOK_S = 0.5  # Each look takes processor time from the run.
_PROCESSES_END_S = 60.0
Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One of the bench's runs."""

    kind: Kind
    number: int | None
    """From 1, over both kinds; None for a warm-up that is not counted."""


def order(kinds: Sequence[Kind], *, runs: int) -> Iterator[Submission]:
    """One warm-up of each kind, then the kinds in turn, so that a drift meets them alike."""
    for kind in kinds:
        yield Submission(kind=kind, number=None)
    numbers = count(1)
    for _ in range(runs):
        for kind in kinds:
            yield Submission(kind=kind, number=next(numbers))


@dataclass(kw_only=True)
class LoopBench:
    """`measured` grows as it goes, and stays when it is broken off."""

    cluster: Cluster
    config: TrainingConfig
    workspace: Path
    kinds: Sequence[Kind]
    runs: int
    """Of each kind."""
    tell: Tell
    measured: list[Measured] = field(default_factory=list)

    def run(self) -> None:
        """Raises RunFailedError for the first run that fails, with its remedy."""
        for submission in order(self.kinds, runs=self.runs):
            self._one(submission)

    def _one(self, submission: Submission) -> None:
        run = self._submit(submission.kind)
        try:
            self._wait(run)
        except KeyboardInterrupt:
            self.tell(f"stopping {run.id}")
            with suppress(LLMOpsError, KeyboardInterrupt):
                run.stop()
            raise
        found = read(run, submission.kind)
        workers = self.config.parallelism.num_workers
        why = misfit(submission.kind, run.view, num_workers=workers)
        self.tell(self._line(submission, found, why))
        if submission.number is not None and not why:
            self.measured.append(found)

    def _submit(self, kind: Kind) -> Run:
        from llmops_kernel import api
        from llmops_kernel.jobs.submit import submit_run
        from llmops_kernel.runs.store import RunStore

        with self.cluster.client() as client:
            record, _ = submit_run(
                store=RunStore(),
                cluster=self.cluster.info,
                client=client,
                config=self.config,
                workspace=self.workspace,
                env_vars={REFUSE_ENV_VAR: COLD_REASON} if kind == "cold" else None,
            )
        return api.attach(record.run_id)

    def _wait(self, run: Run) -> None:
        """Until the run has ended and its processes with it: they must not slow the next one."""
        while run.state not in TERMINAL:
            time.sleep(_LOOK_S)
        job = run.attempts[-1].submission_id
        deadline_s = time.monotonic() + _PROCESSES_END_S
        with self.cluster.client() as client:
            while time.monotonic() < deadline_s:
                seen = client.get(job)
                if seen is None or seen.is_terminal:
                    return
                time.sleep(_LOOK_S)

    def _line(self, submission: Submission, found: Measured, why: str) -> str:
        total = len(self.kinds) * self.runs
        number = submission.number
        place = "warm-up" if number is None else f"{number}/{total}"
        line = f"{place:>7}  {found.kind}  {fmt.seconds(found.first_step_s):>7}  {found.run_id}"
        if why:
            line += f"\n         not counted as {found.kind}: {why}"
        return line


def read(run: Run, kind: Kind) -> Measured:
    """What the journal of a run that has ended tells. Raises RunFailedError if it failed."""
    view = run.view
    first_step_s = view.submit_to_first_step_s
    if view.state != "SUCCEEDED" or first_step_s is None:
        told = view.message or ("no reason was told" if view.state != "SUCCEEDED" else "no step")
        raise RunFailedError(
            f"Run {run.id} of the bench ({kind}) {view.state}: {told}",
            remedy=view.remedy or f"llmops show {run.id}",
        )
    return Measured(kind=kind, run_id=run.id, first_step_s=first_step_s, phases=phase_shares(view))
