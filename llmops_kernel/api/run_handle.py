"""A run as the user holds it: works with and without its cluster."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmops_kernel.api.cluster_handle import Cluster, as_mapping, combined, load
from llmops_kernel.api.surroundings import ProgressLine, in_notebook
from llmops_kernel.clusters.provider import ClusterProvider
from llmops_kernel.clusters.providers import providers
from llmops_kernel.config.overrides import Overrides
from llmops_kernel.config.train import TrainingConfig
from llmops_kernel.errors import (
    ClusterError,
    ClusterNotFoundError,
    RunFailedError,
    RunNotFoundError,
    RunStateError,
)
from llmops_kernel.jobs.control import retry_run, stop_run
from llmops_kernel.jobs.follow import Follower
from llmops_kernel.jobs.log_source import log_on_disk, log_over_http
from llmops_kernel.jobs.observe import Observer
from llmops_kernel.metrics.events import AnyEvent, RunState, StepEvent
from llmops_kernel.runs.deletion import Doomed, preview
from llmops_kernel.runs.diff import RunDiff, diff_runs
from llmops_kernel.runs.log_text import LogText
from llmops_kernel.runs.notes import RunNotes
from llmops_kernel.runs.paths import RunFolder
from llmops_kernel.runs.record import Attempt, RunRecord
from llmops_kernel.runs.store import RunStore
from llmops_kernel.runs.view import RunView

if TYPE_CHECKING:
    import pandas as pd

LOG_LINES = 5_000
LINE_PERIOD_S = 1.0
_NOT_SHOWN = {"kind", "stream", "seq"}


class Run:
    """Reads its record and journal from disk; asks the cluster only where it must."""

    def __init__(
        self, store: RunStore, run_id: str, *, provider: ClusterProvider | None = None
    ) -> None:
        self.id = run_id
        self._store = store
        self._provider = provider

    # What is known

    @cached_property
    def record(self) -> RunRecord:
        """What was submitted, from where and by whom; never changes."""
        return self._store.record(self.id)

    @cached_property
    def config(self) -> TrainingConfig:
        """The resolved training config."""
        return TrainingConfig.model_validate(self.record.config)

    @property
    def folder(self) -> RunFolder:
        return self._store.folder(self.id)

    @property
    def folder_exists(self) -> bool:
        """False once it has been deleted."""
        return self._folder.record.exists()

    @cached_property
    def _folder(self) -> RunFolder:
        return self._store.folder(self.id)

    @property
    def attempts(self) -> list[Attempt]:
        return self._store.attempts(self.id)

    @property
    def view(self) -> RunView:
        """What the journal tells by now: state, steps, evaluations, phases, figures."""
        self._source.poll()
        return self._source.view

    @property
    def state(self) -> RunState:
        view = self.view
        # An attempt that has told nothing yet leaves its predecessor's end standing.
        return "PENDING" if view.is_terminal and not self._source.is_over else view.state

    @property
    def output(self) -> Path | str | None:
        """Folder or URL of the result; None until there is one."""
        outputs = self.view.outputs
        if not outputs:
            return None
        path = outputs[-1].path
        return path if "://" in path else Path(path)

    @property
    def notes(self) -> RunNotes:
        """Title, star and note; anybody may change them at any time."""
        return self._store.notes(self.id)

    @property
    def title(self) -> str:
        """What people call it; empty until somebody does."""
        return self.notes.title

    @title.setter
    def title(self, text: str) -> None:
        self._store.annotate(self.id, title=text)

    @property
    def note(self) -> str:
        return self.notes.note

    @note.setter
    def note(self, text: str) -> None:
        self._store.annotate(self.id, note=text)

    def star(self) -> None:
        """Mark it as worth keeping; `llmops runs --starred` lists such runs."""
        self._store.annotate(self.id, starred=True)

    def unstar(self) -> None:
        self._store.annotate(self.id, starred=False)

    def events(self) -> list[AnyEvent]:
        """The whole journal, by time."""
        return self._store.events(self.id)

    def metrics(self) -> pd.DataFrame:
        """One row an optimizer step, indexed by `step`; columns as in `StepEvent`, base units."""
        return _frame(StepEvent, self.view.steps)

    def evaluations(self) -> pd.DataFrame:
        """One row an evaluation, indexed by `step`, one column a metric."""
        import pandas as pd

        evals = self.view.evals
        rows = [{"num_rows": e.num_rows, "duration_s": e.duration_s, **e.metrics} for e in evals]
        return pd.DataFrame(rows, index=pd.Index([e.step for e in evals], name="step"))

    def logs(self, *, tail: int | None = None) -> str:
        """The last lines of what the driver and the workers wrote, of the newest attempt.

        Raises a ClusterError when the run is still on and its cluster does not answer.
        """
        lines = LOG_LINES if tail is None else tail
        return self.log().tail(lines) if lines > 0 else ""

    def log(self, attempt: int | None = None) -> LogText:
        """The log of an attempt (default the newest), to be read in parts and searched.

        Raises RunNotFoundError for an attempt that never was, and a ClusterError when the
        run is still on and its cluster does not answer.
        """
        attempts = self.attempts
        if not attempts and attempt is None:
            return LogText(b"")
        chosen = next((a for a in reversed(attempts) if attempt in (None, a.number)), None)
        if chosen is None:
            raise RunNotFoundError(
                f"Run {self.id} has no attempt {attempt}",
                remedy=f"use one of: {', '.join(str(a.number) for a in attempts)}",
            )
        on_disk = log_on_disk(self.folder, self.record, chosen)
        return on_disk if on_disk is not None else self._log_of_cluster(chosen)

    def _log_of_cluster(self, attempt: Attempt) -> LogText:
        try:
            with self._cluster(attempt.cluster).client() as client:
                return log_over_http(client, attempt)
        except ClusterError:
            if not self._source.is_over:
                raise
            return LogText(b"")

    def diff(self, other: Run | str) -> RunDiff:
        """What differs in config, code and environment, from the older run to the newer."""
        other_id = self._store.resolve(other) if isinstance(other, str) else other.id
        ids = sorted((self.id, other_id), key=lambda run_id: self._store.record(run_id).created_s)
        return diff_runs(self._store, ids[0], ids[1])

    # What can be done

    def wait(self, timeout_s: float | None = None, *, raise_on_failure: bool = True) -> RunState:
        """Block until the run ends; shows the live panel in a notebook, else a progress line.

        Ctrl-C (or the kernel's interrupt) detaches: the run goes on. Returns the state,
        which is not a final one after `timeout_s` or Ctrl-C. Raises RunFailedError.
        """
        try:
            if in_notebook():
                from llmops_kernel.widgets.show import wait_in_notebook

                wait_in_notebook(self, timeout_s)
            else:
                self._wait_in_terminal(timeout_s)
        except KeyboardInterrupt:
            print(
                f"\nDetached; run {self.id} goes on. Come back: llmops wait {self.id}, "
                f'or llmops.attach("{self.id}").wait(). Stop it: llmops stop {self.id}'
            )
            return self.state
        state = self.state
        if state == "FAILED" and raise_on_failure:
            raise RunFailedError(_failure(self.id, self.view), remedy=self.view.remedy)
        return state

    def _wait_in_terminal(self, timeout_s: float | None) -> None:
        from llmops_kernel.widgets.static_run import one_line

        line = ProgressLine()
        try:
            with self.follower() as source:
                shown_s = 0.0
                for _ in source.follow(timeout_s=timeout_s):
                    if time.monotonic() - shown_s >= LINE_PERIOD_S or source.is_over:
                        shown_s = time.monotonic()
                        line.show(f"{self.id}: {one_line(source.view)}")
        finally:
            line.end()

    def show(self) -> None:
        """The live panel, in a notebook; returns at once. Elsewhere prints one line."""
        if in_notebook():
            from llmops_kernel.widgets.show import show

            show(self)
        else:
            print(self)

    def stop(self) -> None:
        """Ask for a stop and return at once; the run saves a checkpoint first.

        Stopping a run that is over does nothing.
        """
        attempts = self.attempts
        if not attempts or self._is_over():
            return
        with self._cluster(attempts[-1].cluster).client() as client:
            stop_run(self._store, self.id, client=client)

    def retry(self) -> Run:
        """A new attempt of the same config and code, from the last checkpoint.

        Raises RunStateError while the run is on.
        """
        cluster = self._cluster(self.record.cluster)
        self._settle()
        with cluster.client() as client:
            retry_run(self._store, self.id, cluster=cluster.info, client=client)
        return self

    def resubmit(
        self,
        *,
        workspace: Path | str | None = None,
        cluster: Cluster | None = None,
        overrides: Overrides = (),
        **settings: Any,
    ) -> Run:
        """A new run of this config with changes, and of the workspace's code as it is now."""
        target = cluster or self._cluster(self.record.cluster)
        changes = combined(overrides, settings)
        return target.submit_config(
            load(self.record.config, changes),
            workspace=Path(workspace or self.record.workspace_root),
            config_path=self.record.config_path,
            overrides=as_mapping(changes),
            parent=self.id,
        )

    def deletion(self) -> Doomed:
        """What `delete` would remove, and what it would leave."""
        return preview(self._store, self.id)

    def delete(self) -> None:
        """Remove the run's folder: record, journal, logs, checkpoints and outputs in it.

        Raises RunStateError while it runs.
        """
        self._settle_quietly()
        if self.attempts and not self._is_over():
            raise RunStateError(
                f"Run {self.id} is {self.state}; only an ended run can be deleted",
                remedy="`run.stop()` first and wait for its end",
            )
        self._source.close()
        self._store.delete(self.id)

    # How it is followed

    def follower(self) -> Follower:
        """A source of its own for a view: two views must not take each other's events.

        It also finds out when the driver or the cluster died without a word.
        """
        provider = self._find_provider()
        if provider is None:
            return Follower(self._store, self.id)
        observer = Observer(self._store, self.id, provider=provider)
        # Asked in the follower's thread: it may take seconds, or fail now and work later.
        return Follower(
            self._store,
            self.id,
            connection=lambda: provider.connect(self._full_cluster_name()),
            on_silence=observer.nudge,
        )

    def _full_cluster_name(self) -> str:
        attempts = self.attempts
        return attempts[-1].full_name if attempts else self.record.cluster

    @cached_property
    def _source(self) -> Follower:
        return self.follower()

    def _is_over(self) -> bool:
        self._source.poll()
        return self._source.is_over

    def _settle(self) -> None:
        """Find out now whether the run has ended unseen, and keep its log."""
        provider = self._find_provider()
        if provider is not None:
            Observer(self._store, self.id, provider=provider).check()

    def _settle_quietly(self) -> None:
        with suppress(ClusterError):
            self._settle()

    def _find_provider(self) -> ClusterProvider | None:
        if self._provider is None:
            name = self.record.provider
            self._provider = next((p for p in providers() if p.name == name), None)
        return self._provider

    def _cluster(self, name: str) -> Cluster:
        provider = self._find_provider()
        if provider is None:
            raise ClusterNotFoundError(
                f"Run {self.id} ran on a {self.record.provider!r} cluster, which this "
                "installation does not know",
                remedy="install the version of llmops-kernel that submitted it",
            )
        return Cluster(name, provider=provider)

    def __repr__(self) -> str:
        from llmops_kernel.widgets.static_run import one_line

        return f"<Run {self.id}: {one_line(self.view)}>"

    def _repr_html_(self) -> str:
        from llmops_kernel.widgets.static_run import one_line

        return f"Run <b>{escape(self.id)}</b>: {escape(one_line(self.view))}"


def _frame(kind: type[StepEvent], events: list[StepEvent]) -> pd.DataFrame:
    import pandas as pd

    columns = [name for name in kind.model_fields if name not in _NOT_SHOWN]
    rows = [[getattr(event, name) for name in columns] for event in events]
    return pd.DataFrame(rows, columns=columns).set_index("step")


def _failure(run_id: str, view: RunView) -> str:
    text = f"Run {run_id} failed: {view.message or 'no reason was told'}"
    told = [f for f in view.failures if f.attempt == view.attempt and f.file]
    return f"{text} ({told[-1].file}:{told[-1].line})" if told else text
