"""The handles of several runs of one call: a sweep, and the runs of a group once more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmops_kernel.api.environment import ProgressLine, default_progress
from llmops_kernel.api.run_handle import Run
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services import rerun as service_rerun
from llmops_kernel.services import sweep as service
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.clusters import find
from llmops_kernel.services.rerun import FigureChange, changes_of
from llmops_kernel.services.sweep import Trial
from llmops_kernel.services.sweep_plan import SweepSpec
from llmops_kernel.views import format as fmt
from llmops_kernel.views.figures import RunTable

if TYPE_CHECKING:
    import pandas as pd


class Sweep(service.Sweep):
    """A sweep; prints as a table of its trials, which are ordinary runs."""

    def __init__(self, backend: Backend, spec: SweepSpec) -> None:
        super().__init__(backend, spec)
        self.backend = backend

    @property
    def runs(self) -> list[Run]:
        """The runs of the trials that were submitted, in the order of the trials."""
        return [Run(self.backend, trial.run) for trial in self.trials() if trial.run]

    def best(self) -> Run | None:
        """Return the run with the best metric; None before one has succeeded.

        A trial that failed, was stopped, or whose metric is NaN is never the best.
        """
        trial = self.best_trial()
        return Run(self.backend, trial.run) if trial is not None and trial.run else None

    def resume(
        self,
        *,
        on_change: service.OnChange | None = None,
        progress: Progress | None = None,
    ) -> Sweep:
        """Submit the trials that have no run yet, and wait for the end of all.

        Ctrl-C leaves what runs running; call it again to go on. Raises RunStateError while
        another process runs this sweep.
        """
        line, cluster = ProgressLine(), find(self.spec.cluster, backend=self.backend)
        report = on_change or (lambda trials: line.show(f"{self.id}: {one_line(trials)}"))
        try:
            self.run(cluster, on_change=report, progress=progress or default_progress())
        except KeyboardInterrupt:
            if on_change is not None:
                raise
            print(
                f"\nInterrupted: no further trial starts, and what runs continues. Go on:"
                f' cluster.attach_sweep("{self.id}").resume(); its stop() stops what runs.'
            )
        finally:
            line.end()
        return self

    def table(self, trials: Sequence[Trial] | None = None) -> RunTable:
        """Return the trials as a table; the best one has a star."""
        trials = self.trials() if trials is None else trials
        best = service.best_of(trials, self.spec.better)
        rows = [
            (
                f"{trial.number}{' *' if best is not None and trial.number == best.number else ''}",
                trial.name,
                trial.value_text or fmt.DASH,
                trial.state.capitalize(),
                fmt.seconds(trial.took_s),
                trial.run or fmt.DASH,
            )
            for trial in trials
        ]
        names = ("trial", "values", self.spec.metric, "state", "duration", "run")
        return RunTable(names=names, rows=tuple(rows), numbers=(self.spec.metric, "duration"))

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame, one row a trial: its values as texts, run, state and metric."""
        import pandas as pd

        rows = [
            {
                "trial": trial.number,
                **trial.changes,
                "run": trial.run,
                "state": trial.state,
                self.spec.metric: trial.value,
                "duration_s": trial.took_s,
            }
            for trial in self.trials()
        ]
        return pd.DataFrame(rows).set_index("trial")

    def __repr__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()


# --- The runs of a group once more ---


class Rerun(service_rerun.Rerun):
    """Runs and those that repeat them; prints as a table of how each figure has changed."""

    def wait(self, *, parallel: int | None = None, progress: Progress | None = None) -> Rerun:
        """Submit the runs that were not yet, and wait for the end of all.

        Ctrl-C leaves what runs running; call it again to go on.
        """
        line = ProgressLine()

        def show(ended: int, running: int) -> None:
            line.show(f"{self.into}: {ended} of {self.num_runs} ended, {running} running")

        try:
            self.run(parallel=parallel, on_change=show, progress=progress or default_progress())
        finally:
            line.end()
        return self

    def table(self) -> RunTable:
        """Return a line a figure: means before and after, change with its 95 % interval."""
        return changes_table(changes_of(self.pairs()))

    def pairs_table(self) -> RunTable:
        """Return a line a pair, with the changes of the figures that lists of runs show."""
        pairs = self.pairs()
        listed = {
            before.key: before.label
            for pair in pairs
            for before, _ in pair.figures.values()
            if before.listed
        }
        rows = []
        for pair in pairs:
            both = [pair.figures.get(key) for key in listed]
            changes = (
                fmt.change(each[1].value, each[0].value, each[0].unit) if each else fmt.DASH
                for each in both
            )
            after = pair.after or fmt.DASH
            rows.append((pair.before.run_id, after, pair.state.capitalize(), *changes))
        names = ("run", "again", "state", *listed.values())
        return RunTable(names=names, rows=tuple(rows), numbers=tuple(listed.values()))

    def __repr__(self) -> str:
        return f"{self.pairs_table().text()}\n\n{self.table().text()}"

    def _repr_html_(self) -> str:
        return f"{self.pairs_table().html()}{self.table().html()}"


def changes_table(changes: list[FigureChange]) -> RunTable:
    """Return the changes of figures, those beyond the noise of the pairs first."""
    ordered = sorted(changes, key=lambda change: not change.is_beyond_noise)
    rows = tuple(
        (
            change.label,
            str(change.num_pairs),
            fmt.by_unit(change.before, change.unit),
            fmt.by_unit(change.after, change.unit),
            _change_text(change, change.change),
            fmt.DASH
            if change.interval is None
            else " to ".join(_change_text(change, end) for end in change.interval),
            {True: "yes", False: "no", None: fmt.DASH}[change.is_beyond_noise],
        )
        for change in ordered
    )
    names = ("figure", "pairs", "before", "after", "change", "95 % interval", "beyond noise")
    return RunTable(names=names, rows=rows, numbers=("pairs", "before", "after", "change"))


def _change_text(change: FigureChange, value: float) -> str:
    if value == (1.0 if change.is_ratio else 0.0):
        return "same"
    return f"× {value:.4g}" if change.is_ratio else f"{value:+.4g}"


def one_line(trials: Sequence[Trial]) -> str:
    """Return `12 of 24 trials ended, 1 runs`."""
    ended = sum(trial.has_ended for trial in trials)
    running = sum(trial.run is not None and not trial.has_ended for trial in trials)
    return f"{ended} of {len(trials)} trials ended, {running} running"
