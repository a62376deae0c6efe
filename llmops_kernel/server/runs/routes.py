"""Routes of runs. Handlers parse, call and answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Literal

from llmops_kernel.server.base import LLMOpsHandler, RequestError, protected
from llmops_kernel.server.operations import Operations
from llmops_kernel.server.runs import work as work
from llmops_kernel.server.runs.followers import Followers, Watched
from llmops_kernel.server.runs.rows import read_row
from llmops_kernel.server.wire.clusters import EmptyBody
from llmops_kernel.server.wire.common import OperationInfo
from llmops_kernel.server.wire.runs import (
    Change,
    CodeChange,
    ComparedFigure,
    Comparison,
    ComparisonMatrix,
    FileText,
    NotesBody,
    ProfileBody,
    QueueBody,
    ResubmitBody,
    RunDifference,
    SubmitBody,
)
from llmops_kernel.services import comparison
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.comparison import ComparedRuns
from llmops_kernel.store.code import code_of, git_diff_of
from llmops_kernel.store.diff import Difference, RunDiff, value_text
from llmops_kernel.store.journal.summary import FigureValue
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.store import RunStore
from llmops_kernel.views import format as fmt
from llmops_kernel.views.comparison_matrix import ComparedRun, matrix_of, unlike_figures
from llmops_kernel.views.comparison_tables import phase_names, phase_seconds
from llmops_kernel.views.figures import compared_figures, group_of
from llmops_kernel.views.samples import compared_samples
from llmops_kernel.views.snapshot import elapsed_s


class RunRequest(LLMOpsHandler):
    """A request about one run."""

    async def start(
        self, work: Callable[[Operations, Backend, str], OperationInfo], run_id: str
    ) -> None:
        """Start an operation on the run and reply with it."""
        manager = self.manager
        started = await self.ask(work, manager.operations, manager.backend, run_id)
        self.reply(started, status=202)


class RunsHandler(LLMOpsHandler):
    @protected
    async def get(self) -> None:
        """Reply with runs; `all=1` includes runs of benchmarks and self-tests."""
        hidden = self.query("all", "0") == "1"
        self.reply(await self.run(work.list_runs, self.manager.run_rows, hidden=hidden))

    @protected
    async def post(self) -> None:
        body, root = self.body(SubmitBody), self.manager.root_dir
        self.reply(
            await self.ask(
                work.submit, self.manager.operations, self.manager.backend, body, root=root
            ),
            status=202,
        )


class RunHandler(RunRequest):
    @protected
    async def get(self, run_id: str) -> None:
        root = self.manager.root_dir
        self.reply(await self.run(work.detail, self.manager.followers, run_id, root=root))

    @protected
    async def patch(self, run_id: str) -> None:
        changes = self.body(NotesBody).model_dump(exclude_none=True)
        notes = await self.run(self.manager.store.annotate, run_id, **changes)
        self.manager.hub.wake("runs")
        self.reply(notes)

    @protected
    async def delete(self, run_id: str) -> None:
        self.body(EmptyBody)
        await self.start(work.delete, run_id)


class PreviewHandler(LLMOpsHandler):
    @protected
    async def get(self, run_id: str) -> None:
        self.reply(await self.run(work.preview, self.manager.backend, run_id))


class StopHandler(RunRequest):
    @protected
    async def post(self, run_id: str) -> None:
        self.body(EmptyBody)
        await self.start(work.stop, run_id)


class RetryHandler(RunRequest):
    @protected
    async def post(self, run_id: str) -> None:
        self.body(EmptyBody)
        await self.start(work.retry, run_id)


class RestartHandler(RunRequest):
    @protected
    async def post(self, run_id: str) -> None:
        """Restart a run that makes no step, from its last checkpoint."""
        self.body(EmptyBody)
        await self.start(work.restart, run_id)


class ProfileHandler(RunRequest):
    @protected
    async def get(self, run_id: str) -> None:
        """Reply with one profile; `number` counts them from 0."""
        number = self.query_int("number", 0)
        self.reply(await self.run(work.profile_of, self.manager.followers, run_id, number=number))

    @protected
    async def post(self, run_id: str) -> None:
        await self.start(partial(work.profile, steps=self.body(ProfileBody).steps), run_id)


class QueueHandler(RunRequest):
    @protected
    async def post(self, run_id: str) -> None:
        await self.start(partial(work.move, body=self.body(QueueBody)), run_id)


class ResubmitHandler(LLMOpsHandler):
    @protected
    async def post(self, run_id: str) -> None:
        body = self.body(ResubmitBody)
        started = await self.ask(
            work.resubmit, self.manager.operations, self.manager.backend, run_id, body
        )
        self.reply(started, status=202)


class RowsHandler(LLMOpsHandler):
    @protected
    async def get(self, run_id: str) -> None:
        """Reply with 32-bit floats, little end first, one row per step, in the header's order."""
        names, data = await self.run(self._rows, run_id)
        self.set_header("X-LLMOps-Fields", ",".join(names))
        self.finish(data, set_content_type="application/octet-stream")

    def _rows(self, run_id: str) -> tuple[list[str], bytes]:
        with self.manager.followers.watching(run_id) as watched, watched.lock:
            return [column.name for column in watched.columns], watched.rows()


class SamplesHandler(LLMOpsHandler):
    @protected
    async def get(self, run_id: str) -> None:
        """Reply with samples; `first`: one page of the newest from that one on."""
        first = self.query_int("first", 0)
        if first < 0:
            raise RequestError(f"first must not be negative, as {first} is", status=422)
        self.reply(await self.run(work.samples, self.manager.followers, run_id, first=first))


class FileHandler(LLMOpsHandler):
    @protected
    async def get(self, run_id: str) -> None:
        path = self.query("path")
        text = await self.run(code_of, self.manager.store, run_id, path)
        self.reply(FileText(path=path, text=text))


class GitDiffHandler(LLMOpsHandler):
    @protected
    async def get(self, run_id: str) -> None:
        """Reply with the difference of a run's workspace from its git revision."""
        text = await self.run(git_diff_of, self.manager.store, run_id)
        self.reply(FileText(path="git.diff", text=text))


class CompareHandler(LLMOpsHandler):
    @protected
    async def get(self) -> None:
        refs = [ref for ref in self.query("runs").split(",") if ref]
        base = self.query("base", "") or None
        if not refs:
            raise RequestError("name the runs: runs=a,b", status=422)
        self.reply(await self.run(compare, self.manager.followers, refs, base=base))


ROUTES = [
    (r"runs", RunsHandler),
    (r"compare", CompareHandler),
    (r"runs/([^/]+)", RunHandler),
    (r"runs/([^/]+)/preview", PreviewHandler),
    (r"runs/([^/]+)/stop", StopHandler),
    (r"runs/([^/]+)/queue", QueueHandler),
    (r"runs/([^/]+)/retry", RetryHandler),
    (r"runs/([^/]+)/restart", RestartHandler),
    (r"runs/([^/]+)/profile", ProfileHandler),
    (r"runs/([^/]+)/resubmit", ResubmitHandler),
    (r"runs/([^/]+)/rows", RowsHandler),
    (r"runs/([^/]+)/samples", SamplesHandler),
    (r"runs/([^/]+)/file", FileHandler),
    (r"runs/([^/]+)/git-diff", GitDiffHandler),
]


# --- Several runs side by side: what differs, figures, answers to the same rows ---


MAX_RUNS = 8


def compare(followers: Followers, refs: Sequence[str], *, base: str | None = None) -> Comparison:
    """Compare runs, oldest first: `base`, without one the oldest, with all others."""
    if not 2 <= len(refs) <= MAX_RUNS:
        raise RequestError(f"compare 2 to {MAX_RUNS} runs, not {len(refs)}", status=422)
    with ExitStack() as stack:
        watched = {w.run.id: w for w in (stack.enter_context(followers.watching(r)) for r in refs)}
        compared = comparison.compare(followers.store, list(watched), base=base)
        ordered = [watched[run_id] for run_id in compared.run_ids]
        for item in ordered:
            stack.enter_context(item.lock)
        rows = [read_row(item, followers.store) for item in ordered]
        views = {item.run.id: item.view for item in ordered}
        position = compared.run_ids.index(compared.base)
        return Comparison(
            runs=[row.model_copy(update={"differs": compared.names[row.run_id]}) for row in rows],
            base=position,
            matrix=_matrix(followers.store, ordered, compared, base=position),
            figures=figures(
                [item.view for item in ordered],
                base=position,
                unlike=unlike_figures(
                    [followers.store.record(item.run.id).config for item in ordered]
                ),
            ),
            differences=[
                _difference(diff)
                for diff in comparison.with_predictions(followers.store, compared, views)
            ],
            samples=compared_samples([item.view for item in ordered]),
            has_rows=comparison.has_rows(followers.store, compared.run_ids),
        )


def _matrix(
    store: RunStore, watched: Sequence[Watched], compared: ComparedRuns, *, base: int
) -> ComparisonMatrix:
    runs = [
        ComparedRun(
            name=compared.names[each.run.id], view=each.view, record=store.record(each.run.id)
        )
        for each in watched
    ]
    return ComparisonMatrix.model_validate(asdict(matrix_of(runs, base=base)))


def figures(
    views: Sequence[RunView], *, base: int = 0, unlike: Collection[str] = ()
) -> list[ComparedFigure]:
    """Return one entry per figure of at least one run, then the time taken and each phase.

    Changes are from the run at `base`; figures in `unlike` have none.
    """
    by_run = [{figure.key: figure for figure in compared_figures(view)} for view in views]
    keys = dict.fromkeys(key for values in by_run for key in values)
    compared = [
        _figure([values.get(key) for values in by_run], base=base, has_changes=key not in unlike)
        for key in keys
    ]
    elapsed = [elapsed_s(view) for view in views]
    compared.append(_seconds("duration", "speed", elapsed, base=base))
    phases = [phase_seconds(view) for view in views]
    for name in phase_names([("", view) for view in views]):
        took = [values.get(name) for values in phases]
        compared.append(_seconds(name.replace("_", " "), "start", took, base=base))
    return [figure for figure in compared if any(text != fmt.DASH for text in figure.texts)]


def _figure(
    values: Sequence[FigureValue | None], *, base: int, has_changes: bool
) -> ComparedFigure:
    """Return a figure of all runs; None for a run whose kind does not have it."""
    example = next(value for value in values if value is not None)
    numbers = [None if value is None else value.value for value in values]
    return ComparedFigure(
        label=example.label,
        group=group_of(example),
        texts=[fmt.DASH if value is None else value.text for value in values],
        changes=[
            fmt.change(number, numbers[base], example.unit) if has_changes else fmt.DASH
            for number in numbers
        ],
    )


def _seconds(
    label: str, group: Literal["speed", "start"], values: Sequence[float | None], *, base: int
) -> ComparedFigure:
    return ComparedFigure(
        label=label,
        group=group,
        texts=[fmt.seconds(value) for value in values],
        changes=[fmt.change(value, values[base], "seconds") for value in values],
    )


def _difference(diff: RunDiff) -> RunDifference:
    return RunDifference(
        before=diff.a,
        after=diff.b,
        config=[_change(row) for row in diff.config],
        environment=[_change(row) for row in diff.environment],
        prediction=diff.prediction,
        code=[
            CodeChange(
                path=change.path,
                kind=change.kind,
                unified_diff=change.unified_diff,
                is_code=change.is_code,
                counts=change.counts,
            )
            for change in diff.code
        ],
    )


def _change(row: Difference) -> Change:
    path, before, after = row
    return Change(path=path, before=value_text(before), after=value_text(after))
