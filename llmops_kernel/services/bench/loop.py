"""Submits one config warm and cold in turn and reads the times from the runs' journals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from llmops_kernel.errors import RunFailedError
from llmops_kernel.kinds.reading import load
from llmops_kernel.services.backend import Backend, current
from llmops_kernel.services.bench.runs import Report, Start, follow, ready_cluster
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.services.runs import Run
from llmops_kernel.services.submission import changes_in, cold_start, from_config, submit
from llmops_kernel.views import format as fmt
from llmops_kernel.views.bench_figures import Kind, Measured, misfit, phase_shares

if TYPE_CHECKING:
    from llmops_kernel.config.models.section import RunConfig
    from llmops_kernel.store.journal.training_view import TrainingView


def order(kinds: Sequence[Kind], *, runs: int) -> Iterator[tuple[Kind, int | None]]:
    """Yield one warm-up of each kind, without a number, then the kinds in turn from 1 on.

    They take turns so that a drift affects both.
    """
    yield from ((kind, None) for kind in kinds)
    for number in range(runs * len(kinds)):
        yield kinds[number % len(kinds)], number + 1


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
        for kind, number in order(self.kinds, runs=self.runs):
            run = self._submit(kind)
            follow(run, self.cluster, self.report)
            measured = read(run, kind)
            reason = misfit(kind, _view(run), num_workers=self.config.worker_processes)
            label = "warm-up" if number is None else f"{number}/{len(self.kinds) * self.runs}"
            line = f"{label:>7}  {kind}  {fmt.seconds(measured.first_step_s):>7}  {run.id}"
            self.report(line + (f"\n         not counted as {kind}: {reason}" if reason else ""))
            if number is not None and not reason:
                self.measured.append(measured)

    def _submit(self, kind: Kind) -> Run:
        submission = replace(
            from_config(self.config, workspace=self.workspace),
            env_vars=cold_start("requested by llmops bench") if kind == "cold" else None,
            hidden=True,
        )
        record = submit(self.cluster, submission)
        return Run(self.backend, record.run_id, provider=self.cluster.provider)


def prepare_loop(
    path: Path,
    overrides: Sequence[str],
    *,
    cluster: str,
    kinds: Sequence[Kind],
    runs: int,
    report: Report,
    start: Start | None = None,
) -> LoopBench:
    """Check the config, then start the cluster and prepare the model where needed.

    `overrides` are the changes to a config, or the arguments of a script. `start` replaces the
    function that starts the cluster.
    """
    config = load(path, changes_in(overrides, path))
    backend = current()
    return LoopBench(
        cluster=ready_cluster(cluster, config, report=report, start=start, backend=backend),
        backend=backend,
        config=config,
        workspace=path.resolve().parent,
        kinds=kinds,
        runs=runs,
        report=report,
    )


def read(run: Run, kind: Kind) -> Measured:
    """Return the times in the journal of an ended run. Raises RunFailedError if it failed."""
    view = _view(run)
    first_step_s = view.submit_to_first_step_s
    if view.state != "SUCCEEDED" or first_step_s is None:
        missing = "no step was reported" if view.state == "SUCCEEDED" else "no reason was reported"
        raise RunFailedError(
            f"Run {run.id} of the benchmark ({kind}) {view.state}: {view.message or missing}",
            remedy=view.remedy or f"llmops show {run.id}",
        )
    return Measured(kind=kind, first_step_s=first_step_s, phases=phase_shares(view))


def _view(run: Run) -> TrainingView:
    return cast("TrainingView", run.view)
