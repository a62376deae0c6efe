"""Routes of the table of all runs. Handlers parse, call and answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llmops_kernel.metrics.events import TERMINAL
from llmops_kernel.server.base import LLMOpsHandler, RequestError, protected
from llmops_kernel.server.live.operations import Progress
from llmops_kernel.server.run_table.answers import answer, column_of, parallel_coordinates, query_of
from llmops_kernel.server.run_table.live import LiveTable
from llmops_kernel.server.wire.run_table import (
    MAX_BULK,
    RunIds,
    RunIdsBody,
    RunLosses,
    RunTableColumns,
    RunTableQuery,
    RunTagsBody,
)
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.run_table import listing
from llmops_kernel.views import format as fmt
from llmops_kernel.views.run_query.query import Query
from llmops_kernel.views.run_query.row import Value

Action = Callable[[Backend, Sequence[str], listing.Report], list[str]]


class _TableHandler(LLMOpsHandler):
    @property
    def live(self) -> LiveTable:
        return self.manager.run_table


class TableHandler(_TableHandler):
    @protected
    async def post(self) -> None:
        """Reply with a window of the lines; changes nothing."""
        self.reply(await self.run(answer, self.live, self.body(RunTableQuery)))


class ParallelCoordinatesHandler(_TableHandler):
    @protected
    async def post(self) -> None:
        """Reply with parallel coordinates of the same query; changes nothing."""
        self.reply(await self.run(parallel_coordinates, self.live, self.body(RunTableQuery)))


class IdsHandler(_TableHandler):
    @protected
    async def post(self) -> None:
        """Reply with the ids of the runs that match, to select all of them; changes nothing."""
        self.reply(await self.run(self._ids, self.body(RunTableQuery)))

    def _ids(self, body: RunTableQuery) -> RunIds:
        selection, _ = self.live.ask(query_of(body))
        return RunIds(run_ids=[row.run_id for row in selection.rows[:MAX_BULK]])


class ColumnsHandler(_TableHandler):
    @protected
    async def get(self) -> None:
        self.reply(await self.run(self._columns))

    def _columns(self) -> RunTableColumns:
        self.live.refresh()
        table = self.live.table
        every = list(table.catalogue.columns.values())
        sample = table.rows[:1_000]
        return RunTableColumns(columns=[column_of(column, sample) for column in every])


class ExportHandler(_TableHandler):
    @protected
    async def get(self) -> None:
        """Reply with all runs that match, as a file: `format=csv` or `parquet`."""
        query = Query(
            where=self.query("where", ""),
            sort=self.query("sort", ""),
            columns=tuple(part for part in self.query("columns", "").split(",") if part),
        )
        kind = self.query("format", "csv")
        writers = {"csv": listing.csv_bytes, "parquet": listing.parquet_bytes}
        if kind not in writers:
            raise RequestError(f"format={kind!r} is neither csv nor parquet", status=422)
        data = await self.run(lambda: writers[kind](self._values(query)))
        self.set_header("Content-Disposition", f'attachment; filename="runs.{kind}"')
        self.finish(data, set_content_type="application/octet-stream")

    def _values(self, query: Query) -> dict[str, list[Value]]:
        self.live.read_all()
        return self.live.ask(query)[1].values()


class LossesHandler(_TableHandler):
    @protected
    async def post(self) -> None:
        """Reply with what deleting these runs would remove; changes nothing."""
        self.reply(await self.run(self._losses, self.body(RunIdsBody).run_ids))

    def _losses(self, run_ids: list[str]) -> RunLosses:
        losses = listing.losses(self.manager.store, run_ids)
        states = {row.run_id: row.get("state") for row in self.live.table.rows}
        not_ended = [each for each in run_ids if states.get(each, "STOPPED") not in TERMINAL]
        return RunLosses(
            num_runs=losses.num_runs,
            size=fmt.byte_size(losses.size_bytes),
            num_checkpoints=losses.num_checkpoints,
            num_with_output=losses.num_with_output,
            starred=list(losses.starred),
            not_ended=not_ended,
            missing=list(losses.missing),
        )


class _BulkHandler(_TableHandler):
    async def start(self, kind: str, action: Action) -> None:
        """Act on runs in the background; one operation for all of them."""
        run_ids, backend = self.body(RunIdsBody).run_ids, self.manager.backend

        def reported(report: Progress) -> dict[str, object]:
            return {"run_ids": action(backend, run_ids, report)}

        started = self.manager.operations.start(kind, f"{len(run_ids)} runs", reported)
        self.reply(started, status=202)


class DeleteHandler(_BulkHandler):
    @protected
    async def post(self) -> None:
        await self.start("delete-runs", listing.delete)


class StopHandler(_BulkHandler):
    @protected
    async def post(self) -> None:
        await self.start("stop-runs", listing.stop)


class TagsHandler(_TableHandler):
    @protected
    async def post(self) -> None:
        """Add and remove tags, and set the colour, of several runs."""
        body = self.body(RunTagsBody)
        await self.run(self._tag, body)
        self.manager.hub.wake("runs")
        self.reply(RunIds(run_ids=body.run_ids))

    def _tag(self, body: RunTagsBody) -> None:
        store = self.manager.store
        listing.tag(store, body.run_ids, add=body.add, remove=body.remove)
        if body.colour is not None:
            for run_id in body.run_ids:
                store.annotate(run_id, colour=body.colour)
        self.live.table.renote(body.run_ids)


ROUTES = [
    (r"run-table", TableHandler),
    (r"run-table/rays", ParallelCoordinatesHandler),
    (r"run-table/ids", IdsHandler),
    (r"run-table/columns", ColumnsHandler),
    (r"run-table/export", ExportHandler),
    (r"run-table/losses", LossesHandler),
    (r"run-table/tags", TagsHandler),
    (r"run-table/delete", DeleteHandler),
    (r"run-table/stop", StopHandler),
]
