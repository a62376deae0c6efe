"""Submits one config warm and cold in turn and reads the times from the runs' journals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from llmops_kernel.errors import RunFailedError
from llmops_kernel.kinds.reading import changes_in, load
from llmops_kernel.services.backend import current
from llmops_kernel.services.bench.runs import Report, Start, follow, ready_cluster
from llmops_kernel.services.runs import Run
from llmops_kernel.services.submission import cold_start, from_config, submit
from llmops_kernel.views import format as fmt
from llmops_kernel.views.bench_figures import Kind, LoopFigures, Measured, misfit, phase_shares

if TYPE_CHECKING:
    from llmops_kernel.store.journal.training_view import TrainingView


def order(kinds: Sequence[Kind], *, runs: int) -> Iterator[tuple[Kind, int | None]]:
    """Yield one warm-up of each kind, without a number, then the kinds in turn from 1 on.

    They take turns so that a drift affects both.
    """
    yield from ((kind, None) for kind in kinds)
    for number in range(runs * len(kinds)):
        yield kinds[number % len(kinds)], number + 1


class LoopBench:
    """Submits and measures; `figures` are of what it has when it is interrupted."""

    def __init__(
        self,
        path: Path,
        overrides: Sequence[str],
        *,
        cluster: str,
        kinds: Sequence[Kind],
        runs: int,
        report: Report,
        start: Start | None = None,
    ) -> None:
        """Check the config, then start the cluster and prepare the model where needed.

        `overrides` are the changes to a config, or the arguments of a script; `runs` is the number
        of each kind. `start` replaces the function that starts the cluster.
        """
        self._config = load(path, changes_in(overrides, path))
        self._workspace = path.resolve().parent
        self._kinds, self._runs, self._report = kinds, runs, report
        self._backend = current()
        self._cluster = ready_cluster(
            cluster, self._config, report=report, start=start, backend=self._backend
        )
        self._measured: list[Measured] = []

    @property
    def figures(self) -> LoopFigures:
        return LoopFigures.of(self._measured)

    def run(self) -> None:
        """Run it. Raises RunFailedError for the first run that fails, with its remedy."""
        for kind, number in order(self._kinds, runs=self._runs):
            run = self._submit(kind)
            follow(run, self._cluster, self._report)
            view = cast("TrainingView", run.view)
            measured = times_of(view, kind, run_id=run.id)
            reason = misfit(kind, view, num_workers=self._config.worker_processes)
            label = "warm-up" if number is None else f"{number}/{len(self._kinds) * self._runs}"
            line = f"{label:>7}  {kind}  {fmt.seconds(measured.first_step_s):>7}  {run.id}"
            self._report(line + (f"\n         not counted as {kind}: {reason}" if reason else ""))
            if number is not None and not reason:
                self._measured.append(measured)

    def _submit(self, kind: Kind) -> Run:
        submission = replace(
            from_config(self._config, workspace=self._workspace),
            env_vars=cold_start("requested by llmops bench") if kind == "cold" else None,
            hidden=True,
        )
        record = submit(self._cluster, submission)
        return Run(self._backend, record.run_id, provider=self._cluster.provider)


def times_of(view: TrainingView, kind: Kind, *, run_id: str) -> Measured:
    """Return the times of an ended run. Raises RunFailedError if it failed."""
    first_step_s = view.submit_to_first_step_s
    if view.state != "SUCCEEDED" or first_step_s is None:
        missing = "no step was reported" if view.state == "SUCCEEDED" else "no reason was reported"
        raise RunFailedError(
            f"Run {run_id} of the benchmark ({kind}) {view.state}: {view.message or missing}",
            remedy=view.remedy or f"llmops show {run_id}",
        )
    return Measured(kind=kind, first_step_s=first_step_s, phases=phase_shares(view))
