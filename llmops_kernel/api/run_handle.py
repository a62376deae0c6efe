"""The handle of a run; works with and without its cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmops_kernel.api.environment import ProgressLine, default_progress, in_notebook
from llmops_kernel.config.reading.shape import Overrides
from llmops_kernel.errors import RunFailedError
from llmops_kernel.kinds.reading import file_kind
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import AnyEvent, RunState, StallEvent, StepEvent
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services import comparison, runs, submission
from llmops_kernel.services.chat import ChatSettings, Only
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.services.export import export_run
from llmops_kernel.services.export_source import Export, Options
from llmops_kernel.services.projects import MovePlan, project_of, set_project
from llmops_kernel.store.diff import RunDiff
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.outputs import PROFILE
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.run_lines import last_lines
from llmops_kernel.store.run_notes import AgentAct, RunNotes, change_tags, read_acts
from llmops_kernel.views.columns import columns_of
from llmops_kernel.views.samples import SAMPLE_FIELDS, sample_records, sampled_rows
from llmops_kernel.views.system import system_rows

if TYPE_CHECKING:
    import pandas as pd

    from llmops_kernel.api.chat import ChatReply
    from llmops_kernel.metrics.waterfall import Waterfall
    from llmops_kernel.planner.verdict import Verdict
    from llmops_kernel.views.reproduction import Reproduction

LOG_LINES = 5_000
TERMINAL_LINE_EVERY_S = 1.0
_NOT_SHOWN = {"kind", "stream", "seq", "values", "stands_for"}


class Run(runs.Run):
    """Reads its record and journal from disk; asks the cluster only where it must."""

    # What is known

    @cached_property
    def config(self) -> Any:
        """The resolved config, of the class of the run's kind, such as `TrainingConfig`."""
        kind = kind_named(self.record.kind)
        return file_kind(kind).model.model_validate(self.record.config)

    @property
    def folder(self) -> RunFolder:
        """The run's folder. Raises RunNotFoundError once it has been deleted."""
        return self._store.folder(self.id)

    @property
    def folder_exists(self) -> bool:
        """Return False once the run has been deleted."""
        return self._folder.record.exists()

    @cached_property
    def _folder(self) -> RunFolder:
        return self._store.folder(self.id)

    @property
    def output(self) -> Path | str | None:
        """Folder or URL of the result; None until there is one."""
        outputs = [output for output in self.view.outputs if output.what != PROFILE]
        if not outputs:
            return None
        path = outputs[-1].path
        return path if "://" in path else Path(path)

    @property
    def notes(self) -> RunNotes:
        """Return title, star, note, tags, project and colour, which users may change."""
        return self._store.notes(self.id)

    @property
    def acts(self) -> tuple[AgentAct, ...]:
        """Return what agents did to the run (`llmops mcp`), each with its reason."""
        return read_acts(self.folder)

    @property
    def title(self) -> str:
        """Return the run's readable name; empty until one is set."""
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

    @property
    def group(self) -> str:
        """The group that it is in, such as its sweep; empty for none."""
        return self.notes.group

    @group.setter
    def group(self, name: str) -> None:
        self._store.annotate(self.id, group=name)

    @property
    def project(self) -> str:
        """What the run is for; empty for none."""
        return self.notes.project

    @project.setter
    def project(self, name: str) -> None:
        set_project(self._backend, self.id, name)

    def move(
        self,
        to: str,
        *,
        project: str = "",
        why: str = "",
        force: str = "",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> MovePlan:
        """Move it to a phase of its project: `prototype`, `candidate`, `released`, or `none`.

        The phase's rule is checked first, set by `llmops project rule`; `force` is a
        reason to move it all the same. `dry_run` returns what would be done and changes nothing.
        Raises RunStateError with what is missing where the rule is not met.
        """
        target = project_of(self._backend, self.id, project)
        if dry_run:
            return target.plan(self.id, to)
        return target.move(self.id, to, why=why, force=force, report=progress or default_progress())

    def star(self) -> None:
        """Mark it as worth keeping; `llmops runs --starred` lists such runs."""
        self._store.annotate(self.id, starred=True)

    def unstar(self) -> None:
        self._store.annotate(self.id, starred=False)

    def tag(self, *tags: str, remove: Sequence[str] = ()) -> tuple[str, ...]:
        """Add tags, remove others, and return all; `llmops.runs("'best' in tags")` finds them."""
        return change_tags(self.folder, add=tags, remove=remove).tags

    def events(self) -> list[AnyEvent]:
        """The whole journal, by time."""
        return self._store.events(self.id)

    def metrics(self) -> pd.DataFrame:
        """Return one row per optimizer step, indexed by `step`.

        Columns as in `StepEvent`, in base units, and one for each further number: what a script
        has reported with `track.log`, the load of a mixture of experts. For a kind without steps
        one row per report, with the columns of its charts.
        """
        view = self.view
        return _frame(view) if isinstance(view, TrainingView) else _reports(view)

    def evaluations(self) -> pd.DataFrame:
        """Return one row per evaluation, indexed by `step`, with one column per metric."""
        import pandas as pd

        view = self.view
        evals = view.evals if isinstance(view, TrainingView) else []
        rows = [{"num_rows": e.num_rows, "duration_s": e.duration_s, **e.metrics} for e in evals]
        return pd.DataFrame(rows, index=pd.Index([e.step for e in evals], name="step"))

    def samples(self, row: str | int | None = None) -> pd.DataFrame:
        """Return what the model answered at each evaluation: a line for each row and step.

        Columns `step`, `row`, `prompt`, `prediction`, `reference` and others that were reported.
        `row`: only this one, from the first step to the last.
        """
        import pandas as pd

        rows = sampled_rows(self.view.evaluations)
        found = list(sample_records(one for one in rows if row is None or one.name == str(row)))
        names = dict.fromkeys((*SAMPLE_FIELDS, *(name for one in found for name in one)))
        return pd.DataFrame(found, columns=list(names))

    def system(self) -> pd.DataFrame:
        """Return what was measured of hosts, GPUs and workers: a row for each at each time.

        `time_s` is Unix time. A worker's row has its `rank`, a host's has none; columns as in
        `WorkerSample` and `HostSample`, in base units, NaN where nobody could measure. `energy_j`
        are joules of the attempt so far, in the last row of a time.
        """
        import pandas as pd

        return pd.DataFrame(system_rows(self.view))

    def stalled(self) -> StallEvent | None:
        """Return where the workers stand, with their stacks; None while steps end.

        `run.restart()` goes on from the last checkpoint.
        """
        return self.view.stall

    def restart(self, *, timeout_s: float = 120.0) -> Run:
        """End a run that makes no step, and go on from its last checkpoint as a new attempt.

        Raises RunStateError while its steps end, or if it has not ended after `timeout_s`.
        """
        self.end_stalled(timeout_s=timeout_s)
        return self.retry()

    def logs(self, *, tail: int | None = None, all_lines: bool = False) -> str:
        """The last lines of what the driver and the workers wrote, of the newest attempt.

        Ray's own lines of level INFO and its entrypoint are left out without `all_lines`.
        Raises a ClusterError when the run has not ended and its cluster does not answer.
        """
        lines = LOG_LINES if tail is None else tail
        return last_lines(self.log(), lines, all_lines=all_lines)

    def diff(self, other: Run | str) -> RunDiff:
        """What differs in config, code and environment, from the older run to the newer."""
        other_id = self._store.resolve(other) if isinstance(other, str) else other.id
        return comparison.diff(self._store, self.id, other_id)

    def waterfall(self) -> Waterfall | None:
        """Return where the FLOPs go, from the peak down to MFU, of the steps measured so far.

        None before the fourth step, and of a run that is no training or of an earlier release.
        """
        from llmops_kernel.views.waterfall import waterfall_of

        return waterfall_of(self.view)

    def verdict(self) -> Verdict | None:
        """Return what bounds the run, and in `.change` the setting to change with its gain.

        `run.resubmit(**run.verdict().change)` tries it. None as `waterfall`.
        """
        from llmops_kernel.services.verdict import verdict_of

        return verdict_of(self.record, self.view)

    # What can be done

    def wait(self, timeout_s: float | None = None, *, raise_on_failure: bool = True) -> RunState:
        """Block until the run ends; shows the live panel in a notebook, else a progress line.

        Ctrl-C (or the kernel's interrupt) detaches; the run continues. Returns the state,
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
                f"\nDetached; run {self.id} continues. Watch it again:"
                f' llmops.attach("{self.id}").wait(). Stop it: llmops.attach("{self.id}").stop()'
            )
            return self.state
        state = self.state
        if state == "FAILED" and raise_on_failure:
            raise RunFailedError(_failure(self.id, self.view), remedy=self.view.remedy)
        return state

    def _wait_in_terminal(self, timeout_s: float | None) -> None:
        from llmops_kernel.views.log_lines import LINE_EVERY_S, LogLines
        from llmops_kernel.views.static_run import one_line

        line = ProgressLine()
        every_s = TERMINAL_LINE_EVERY_S if line.moves else LINE_EVERY_S
        lines = LogLines(now_s=time.time(), every_s=every_s, only_news=not line.moves)
        try:
            with self.follower() as source:
                for _ in source.follow(interval_s=0.2, timeout_s=timeout_s):
                    due = lines.line(source.view, now_s=time.time())
                    if text := one_line(source.view) if source.is_over else due:
                        line.show(f"{self.id}: {text}")
        finally:
            line.end()

    def show(self) -> None:
        """The live panel, in a notebook; returns at once. Elsewhere prints one line."""
        if in_notebook():
            from llmops_kernel.widgets.show import show

            show(self)
        else:
            print(self)

    def resubmit(
        self,
        *,
        workspace: Path | str | None = None,
        cluster: Cluster | None = None,
        overrides: Overrides = (),
        **settings: Any,
    ) -> Run:
        """Submit this config with changes, and the workspace's code as it is now, as a new run.

        `cluster` is a `Cluster`; by default the run's own.
        """
        target = cluster or self._cluster(self.record.cluster)
        again = submission.from_run(
            self.record, workspace=workspace, overrides=overrides, settings=settings
        )
        record = submission.submit(target, again, progress=default_progress())
        return Run(self._backend, record.run_id, provider=target.provider)

    def reproduce(
        self, *, against: Run | str | None = None, cluster: Cluster | None = None
    ) -> Reproduction:
        """Run it once more from its record, wait, and compare every number that is no time.

        The packages and the config are those that were submitted; `cluster` is by default the
        run's own. `against` is a run that is compared instead, such as a reproduction that was
        left running: nothing is submitted. `.is_equal` is the answer, `.reasons` what explains a
        difference. Raises RunStateError for a run that cannot be compared, SubmissionError where
        its packages are gone, RunFailedError if the reproduction failed.
        """
        from llmops_kernel.services import reproduce  # With NumPy: most uses of a run need it not.

        if against is None:
            record = reproduce.begin(
                cluster or self._cluster(self.record.cluster),
                reproduce.check(self._store, self.id),
                progress=default_progress(),
            )
            against = record.run_id
        ref = against.id if isinstance(against, Run) else against
        by = Run(self._backend, self._store.resolve(ref))
        if not by.has_ended:
            by.wait(raise_on_failure=False)
        return reproduce.result(self._store, self.id, by.id)

    def export(
        self,
        to: str = "merged",
        path: Path | str | None = None,
        *,
        progress: Progress | None = None,
        **options: Any,
    ) -> Export:
        """Write the result for serving: `merged`, `vllm`, `gguf`, `triton` or `hub`.

        `path` is a folder, or a URL for `hub`; `options` are those of `llmops export`. Greedy
        answers are compared before and after. Raises ExportError with all that prevents it,
        before anything is written; nothing is left of an export that fails.
        """
        wanted = Options(to=to, path=None if path is None else str(path), **options)
        return export_run(self, wanted, progress=progress or default_progress())

    def chat(
        self,
        prompt: str,
        *,
        system: str = "",
        max_tokens: int = 256,
        temperature: float = 0.0,
        only: Only = "",
        engine: str = "auto",
    ) -> ChatReply:
        """Ask the model that this run has trained, and its base model, on the run's cluster.

        Returns both answers, as `.base` and `.tuned`; `.chat` of the result asks on. The first
        call loads the models. Raises RunStateError for a run without a model, RunFailedError when
        no model answered.
        """
        from llmops_kernel.api.chat import chat

        settings = ChatSettings(
            system=system,
            max_tokens=max_tokens,
            temperature=temperature,
            only=only,
            engine=engine,
        )
        return chat(self._backend, self.id, prompt, settings=settings)

    def __repr__(self) -> str:
        return "<Run {}: {}>".format(*self._words)

    def _repr_html_(self) -> str:
        return "Run <b>{}</b>: {}".format(*map(escape, self._words))

    @property
    def _words(self) -> tuple[str, str]:
        from llmops_kernel.views.static_run import name_and_line

        return name_and_line(self.view, self.record, title=self.title)


def _frame(view: TrainingView) -> pd.DataFrame:
    import pandas as pd

    steps, logged = view.steps, view.logged
    columns = [name for name in StepEvent.model_fields if name not in _NOT_SHOWN]
    rows = [
        [
            *(getattr(event, name) for name in columns),
            *((event.values or {}).get(name) for name in logged),
        ]
        for event in steps
    ]
    return pd.DataFrame(rows, columns=[*columns, *logged]).set_index("step")


def _reports(view: RunView) -> pd.DataFrame:
    """Return the rows of a run's charts, indexed by the first column."""
    import pandas as pd

    columns = columns_of(view)
    rows = [[column.value(row) for column in columns] for row in view.rows if columns]
    names = [column.name for column in columns]
    return pd.DataFrame(rows, columns=names).set_index(names[0]) if names else pd.DataFrame()


def _failure(run_id: str, view: RunView) -> str:
    text = f"Run {run_id} failed: {view.message or 'no reason was reported'}"
    located = [f for f in view.failures if f.attempt == view.attempt and f.file]
    return f"{text} ({located[-1].file}:{located[-1].line})" if located else text
