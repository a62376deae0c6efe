"""A sweep: one config with several values of some fields, as ordinary runs one after another.

What a sweep is stands in a file of the home folder, and what it has done in the records of its
runs. So it can be killed at any time and continued: what has a run is not submitted again.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from llmops_kernel.config.counted import counted
from llmops_kernel.errors import (
    LLMOpsError,
    RunStateError,
)
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import TERMINAL
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services import submission
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.batch import Batch, never_began
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.services.runs import Run
from llmops_kernel.services.search_space import Changes, Proposals, Search
from llmops_kernel.services.sweep_plan import Better, SweepSpec, request_of, sweeps_folder
from llmops_kernel.store.files import store_errors
from llmops_kernel.store.journal.summary import RunSummary
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views.summary import summarise, summary_of

OnChange = Callable[[Sequence["Trial"]], None]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One combination of values, and the run that tries it."""

    number: int
    """From 1."""
    changes: Mapping[str, str]
    run: str | None = None
    """Its run; None before its submission."""
    state: str = "WAITING"
    """State of the run."""
    value: float | None = None
    """The metric; None while it is unknown, and for NaN and infinity."""
    value_text: str = ""
    """The metric as figures are shown."""
    took_s: float | None = None
    message: str = ""

    @property
    def name(self) -> str:
        """Return what differs, such as `learning_rate 1e-4, r 8`."""
        return ", ".join(f"{key.rpartition('.')[2]} {text}" for key, text in self.changes.items())

    @property
    def has_ended(self) -> bool:
        return self.state in TERMINAL

    @property
    def counts(self) -> bool:
        """Return whether it can be the best one: it succeeded, and its metric is a number."""
        return self.state == "SUCCEEDED" and self.value is not None


# --- A sweep with its runs ---


class Sweep:
    """A sweep of a store. Its trials are read from the runs each time."""

    def __init__(self, backend: Backend, spec: SweepSpec) -> None:
        self.spec = spec
        self._backend, self._store = backend, backend.store
        self._changes: list[Changes] = list(spec.trials)
        self._proposals: Proposals | None = None
        self._runs: dict[int, str] = {}
        self._live: dict[int, Run] = {}
        self._ended: dict[int, Trial] = {}
        self._looked_at: set[str] = set()

    @property
    def id(self) -> str:
        return self.spec.id

    def trials(self) -> list[Trial]:
        """Return all trials in order, as they are now."""
        self._find_runs()
        return self._now()

    def best_trial(self) -> Trial | None:
        """Return the succeeded trial with the best metric; None before there is one."""
        return best_of(self.trials(), self.spec.better)

    def _find_runs(self) -> None:
        """Look for runs of this sweep, also those that another process has submitted."""
        numbers = {_key(changes): n for n, changes in enumerate(self._changes, start=1)}
        for row in reversed(self._store.listed()):
            if row.created_s < self.spec.created_s or row.run_id in self._looked_at:
                continue
            with suppress(LLMOpsError):  # Deleted meanwhile.
                record = self._store.record(row.run_id)
                if record.sweep == self.id:
                    key = _key(record.overrides)
                    if key not in numbers and self.spec.optuna is not None:
                        self._changes.append(dict(key))
                        numbers[key] = len(self._changes)
                    # One with other settings is no trial: a user has submitted it again.
                    if key in numbers:
                        self._runs.setdefault(numbers[key], row.run_id)
            self._looked_at.add(row.run_id)

    def _trial(self, number: int) -> Trial:
        trial = Trial(number=number, changes=self._changes[number - 1])
        run_id, live = self._runs.get(number), self._live.get(number)
        if number in self._ended:
            return self._ended[number]
        if live is not None:  # Its view reads what is new only.
            summary: RunSummary | None = summarise(live.record, live.view, live.attempts)
        else:
            summary = summary_of(self._store, run_id) if run_id is not None else None
        if summary is None:
            state = "WAITING" if run_id is None else "DELETED"
            return replace(trial, run=run_id, state=state)
        figure = summary.figure(self.spec.metric)
        return replace(
            trial,
            run=run_id,
            state=summary.state,
            value=figure.value if figure else None,
            value_text=figure.text if figure else "",
            took_s=summary.took_s(now_s=time.time()),
            message=summary.message,
        )

    def run(
        self, cluster: Cluster, *, on_change: OnChange, progress: Progress | None
    ) -> list[Trial]:
        """Submit what has no run yet, as many at a time as fit, and wait for the end of all.

        What is interrupted goes on with the next call. Raises RunStateError while another
        process runs this sweep, and what a submission raises.
        """
        with self._lock():
            batch: Batch[int] = Batch(
                lambda number: self._submit(cluster, number, progress), parallel=self.spec.parallel
            )
            self._live = batch.live
            trials = self.trials()
            for trial in trials:
                if trial.run and not trial.has_ended:
                    batch.live[trial.number] = Run(self._backend, trial.run)
                elif trial.run and never_began(self._store, trial.run):
                    batch.live[trial.number] = Run(self._backend, trial.run).retry()
            missing: Iterable[int] = [trial.number for trial in trials if trial.run is None]
            batch.run(
                missing if self.spec.optuna is None else self._proposed(trials),
                on_change=lambda: self._changed(on_change),
                on_end=self._keep,
            )
            return self._now()

    def _proposed(self, known: Sequence[Trial]) -> Iterator[int]:
        """Yield the numbers of trials that Optuna proposes, each when there is room for it."""
        spec = self.spec
        search = Search(spec.over, optuna=spec.optuna, seed=spec.seed)
        self._proposals = Proposals(search, better=spec.better, num_known=len(known))
        for trial in known:
            if trial.has_ended:
                self._proposals.learn(trial.changes, state=trial.state, value=trial.value)
        while len(self._changes) < (spec.optuna or 0):
            changes = self._proposals.propose()
            if changes is None:
                return
            self._changes.append(changes)
            yield len(self._changes)

    def _changed(self, on_change: OnChange) -> None:
        if self._proposals is not None:
            for number, run in self._live.items():
                curve = _curve(run.view, self.spec.metric)
                if self._proposals.should_stop(self._changes[number - 1], curve):
                    run.stop()
        on_change(self._now())

    def _keep(self, number: int) -> None:
        trial = self._ended[number] = self._trial(number)
        if self._proposals is not None:
            self._proposals.learn(trial.changes, state=trial.state, value=trial.value)

    def _now(self) -> list[Trial]:
        return [self._trial(number) for number in range(1, len(self._changes) + 1)]

    def _submit(self, cluster: Cluster, number: int, progress: Progress | None) -> Run:
        request = request_of(self.spec, self._changes[number - 1])
        record = submission.submit(cluster, request, progress=progress)
        self._runs[number] = record.run_id
        self._looked_at.add(record.run_id)
        return Run(self._backend, record.run_id, provider=cluster.provider)

    def stop(self) -> list[str]:
        """Request a stop of all trials that run; return their ids."""
        live = [trial.run for trial in self.trials() if trial.run and not trial.has_ended]
        for run_id in live:
            Run(self._backend, run_id).stop()
        return live

    @contextmanager
    def _lock(self) -> Iterator[None]:
        path = sweeps_folder(self._store) / f"{self.id}.lock"
        with store_errors("lock", path):
            held = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(held, 0)
            os.pwrite(held, str(os.getpid()).encode(), 0)
            yield
        except BlockingIOError:
            other = os.pread(held, 32, 0).decode(errors="replace")
            raise RunStateError(
                f"Sweep {self.id} is being run by process {other or 'unknown'}.",
                remedy=f"watch it: llmops sweep show {self.id}; or end that process first",
            ) from None
        finally:
            os.close(held)


def _curve(view: RunView, metric: str) -> list[tuple[int, float | None]]:
    """Return the metric by step, as far as the run is."""
    if not isinstance(view, TrainingView):
        return []
    if metric == "loss":
        return [(step.step, step.loss) for step in view.steps]
    return [(event.step, event.metrics.get(metric)) for event in view.evals]


def _key(changes: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((str(key), str(text)) for key, text in changes.items()))


def best_of(trials: Sequence[Trial], better: Better) -> Trial | None:
    """Return the best of the trials that count; the first one of equals."""
    counting = [trial for trial in trials if trial.counts]
    sign = 1 if better == "lower" else -1
    return min(counting, key=lambda trial: sign * (trial.value or 0.0), default=None)


def about_end(spec: SweepSpec, trials: Sequence[Trial]) -> str:
    """Return a sentence about which trials have no part in the choice of the best."""
    failed = sum(trial.state in ("FAILED", "STOPPED") for trial in trials)
    unknown = sum(trial.state == "SUCCEEDED" and trial.value is None for trial in trials)
    parts = [f"{counted(failed, 'trial')} failed or stopped" if failed else ""]
    if unknown:
        figures = sorted(figure.key for figure in kind_named(spec.kind).figures)
        parts.append(
            f"{counted(unknown, 'trial')} without a finite {spec.metric} (figures of such runs:"
            f" {', '.join(figures)})"
        )
    return "; ".join(part for part in parts if part)
