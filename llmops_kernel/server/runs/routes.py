"""Routes of runs. Handlers parse, call and answer."""

from __future__ import annotations

from collections.abc import Callable

from llmops_kernel.server.base import LLMOpsHandler, RequestError, protected
from llmops_kernel.server.live.operations import Operations
from llmops_kernel.server.runs import work as work
from llmops_kernel.server.runs.comparison import compare
from llmops_kernel.server.wire.clusters import EmptyBody
from llmops_kernel.server.wire.common import OperationInfo
from llmops_kernel.server.wire.runs import FileText, NotesBody, ResubmitBody, SubmitBody
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.code import code_of, git_diff_of


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
    (r"runs/([^/]+)/retry", RetryHandler),
    (r"runs/([^/]+)/resubmit", ResubmitHandler),
    (r"runs/([^/]+)/rows", RowsHandler),
    (r"runs/([^/]+)/samples", SamplesHandler),
    (r"runs/([^/]+)/file", FileHandler),
    (r"runs/([^/]+)/git-diff", GitDiffHandler),
]
