"""Submits one config warm and cold in turn and reads the times from the runs' journals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from llmops_kernel.errors import LLMOpsError, RunFailedError
from llmops_kernel.kinds.reading import changes_in, load
from llmops_kernel.services.backend import Backend, current
from llmops_kernel.services.clusters import Cluster, find, is_ready, read_template, up
from llmops_kernel.services.models import prepare_model
from llmops_kernel.services.runs import Run
from llmops_kernel.services.submission import cold_start, from_config, submit
from llmops_kernel.views import format as fmt
from llmops_kernel.views.bench_figures import Kind, LoopFigures, Measured, misfit, phase_shares

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


# --- What all benchmarks do: have a cluster that is ready, submit a run and wait for its end ---


_POLL_S = 0.5  # Each poll takes processor time from the run.
_PROCESSES_END_S = 60.0
Report = Callable[[str], None]
Start = Callable[[str], object]
"""Starts the cluster of that name."""


def ready_cluster(
    name: str, config: RunConfig, *, report: Report, start: Start | None, backend: Backend
) -> Cluster:
    """Start the cluster and prepare the model where needed."""
    if not is_ready(name, backend=backend):
        if start is not None:
            start(name)
        else:
            template, path = read_template(name)
            up(template, path=path, wait=True, progress=report, backend=backend)
    if config.model_id:
        prepare_model(config.model_id, progress=report)
    return find(name, backend=backend)


def follow(run: Run, cluster: Cluster, report: Report) -> None:
    """Wait until the run and its processes have ended: they must not slow the next one.

    A benchmark that is interrupted stops its run.
    """
    try:
        _wait(run, cluster)
    except KeyboardInterrupt:
        report(f"stopping {run.id}")
        with suppress(LLMOpsError, KeyboardInterrupt):
            run.stop()
        raise


def _wait(run: Run, cluster: Cluster) -> None:
    while not run.has_ended:
        time.sleep(_POLL_S)
    job = run.attempts[-1].submission_id
    deadline_s = time.monotonic() + _PROCESSES_END_S
    with cluster.client() as client:
        while time.monotonic() < deadline_s:
            seen = client.get(job)
            if seen is None or seen.is_terminal:
                return
            time.sleep(_POLL_S)
