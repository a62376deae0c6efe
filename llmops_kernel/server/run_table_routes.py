"""Routes of the table of all runs. Handlers parse, call and answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import cast

from llmops_kernel.metrics.events import TERMINAL, RunState
from llmops_kernel.server.base import LLMOpsHandler, RequestError, protected
from llmops_kernel.server.operations import Progress
from llmops_kernel.server.run_table import LiveTable
from llmops_kernel.server.wire.run_table import (
    MAX_BULK,
    RunIds,
    RunIdsBody,
    RunLosses,
    RunTableAnswer,
    RunTableAxis,
    RunTableColumn,
    RunTableColumns,
    RunTableGroup,
    RunTableLine,
    RunTableQuery,
    RunTableRay,
    RunTableRays,
    RunTableRun,
    RunTagsBody,
)
from llmops_kernel.services import run_list as listing
from llmops_kernel.services.backend import Backend
from llmops_kernel.views import format as fmt
from llmops_kernel.views.run_query.listing import Listing, Scale, cell, scale_of, value_cell
from llmops_kernel.views.run_query.order import Group, grouped
from llmops_kernel.views.run_query.query import Query
from llmops_kernel.views.run_query.row import Column, Row, Value, type_of

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


# --- A window of the table and its parallel coordinates, as sent to the browser ---


def query_of(body: RunTableQuery) -> Query:
    return Query(
        where=body.where,
        sort=body.sort,
        columns=tuple(body.columns),
        group=body.group,
        hidden=body.hidden,
    )


def answer(live: LiveTable, body: RunTableQuery) -> RunTableAnswer:
    """Return one window of the lines. Raises QueryError."""
    live.refresh()
    reading = live.table.is_reading  # Before the rows, which another thread may complete now.
    selection, listing = live.ask(query_of(body))
    groups = grouped(selection.rows, selection.group) if selection.group else []
    closed = frozenset(body.closed)
    scale = colour_scale(live, body, listing)
    heads = [_head(group, selection.group, closed) for group in groups]
    every: Sequence[RunTableGroup | Row] = _lines(groups, heads) if groups else selection.rows
    # A group by name says the name already.
    by_name = any(column.key == "name" for column in selection.group)
    has_configs = not by_name and listing.naming.has_families
    window = every[body.first : body.first + body.count]
    return RunTableAnswer(
        version=live.table.version,
        total=len(live.table.rows if body.hidden else live.table.shown),
        matched=len(selection.rows),
        num_lines=len(every),
        first=body.first,
        lines=[_line(each, listing, scale, has_configs=has_configs) for each in window],
        columns=_columns(listing),
        reading=reading,
    )


def _columns(listing: Listing) -> list[RunTableColumn]:
    differing = {column.key for column in listing.differing}
    sample = listing.rows[:1_000]
    return [column_of(c, sample, differs=c.key in differing) for c in listing.columns]


def column_of(column: Column, rows: Sequence[Row], *, differs: bool = False) -> RunTableColumn:
    return RunTableColumn(
        name=column.name,
        label=column.label,
        source=column.source,
        type=type_of(column, rows),
        better=column.better,
        differs=differs,
    )


def colour_scale(live: LiveTable, body: RunTableQuery, listing: Listing) -> Scale | None:
    if not body.colour_by.strip():
        return None
    return scale_of(live.table.catalogue.resolve(body.colour_by.strip()), listing.rows)


def _head(group: Group, columns: Sequence[Column], closed: frozenset[str]) -> RunTableGroup:
    key = json.dumps(group.values)
    parts = zip(columns, group.values, strict=True)
    text = " · ".join(f"{column.label} {value_cell(value, column)}" for column, value in parts)
    return RunTableGroup(key=key, text=text, count=len(group.rows), is_closed=key in closed)


def _lines(groups: Sequence[Group], heads: Sequence[RunTableGroup]) -> list[RunTableGroup | Row]:
    lines: list[RunTableGroup | Row] = []
    for group, head in zip(groups, heads, strict=True):
        lines.append(head)
        lines += () if head.is_closed else group.rows
    return lines


def _line(
    line: RunTableGroup | Row, listing: Listing, scale: Scale | None, *, has_configs: bool
) -> RunTableLine:
    if isinstance(line, RunTableGroup):
        return RunTableLine(group=line, run=None)
    return RunTableLine(group=None, run=run_of(line, listing, scale, has_configs=has_configs))


def run_of(row: Row, listing: Listing, scale: Scale | None, *, has_configs: bool) -> RunTableRun:
    tags, state = row.get("tags"), cast("RunState", row.get("state"))
    return RunTableRun(
        run_id=row.run_id,
        label=listing.naming.name(row),
        config=listing.naming.config_beside(row) if has_configs else "",
        state=state,
        has_ended=state in TERMINAL,
        starred=bool(row.get("starred")),
        tags=list(tags) if isinstance(tags, tuple) else [],
        colour=str(row.get("colour") or ""),
        tone=None if scale is None else scale.at(row),
        cells=[cell(row, column, listing.distinctions) for column in listing.columns],
    )


# --- Parallel coordinates over the table's columns ---


MAX_AXES = 12
MAX_RAYS = 1_000
_NOT_DRAWN = frozenset({"run", "name", "title", "note", "tags", "reason", "differs", "created"})


def parallel_coordinates(live: LiveTable, body: RunTableQuery) -> RunTableRays:
    """Return the matching runs as lines: what differs first, the figures last.

    Raises QueryError.
    """
    live.refresh()
    selection, listing = live.ask(query_of(body))
    scales = [
        scale_of(column, selection.rows) for column in _axes(listing, chosen=bool(body.columns))
    ]
    scales = [scale for scale in scales if scale.values or scale.low is not None]
    if not body.columns:
        scales = [scale for scale in scales if not scale.is_constant]
    tone = colour_scale(live, body, listing) or next(
        (scale for scale in scales if scale.column.source == "figure"), None
    )
    rows = selection.rows[:MAX_RAYS]
    return RunTableRays(
        axes=[_axis(scale) for scale in scales],
        rays=[
            RunTableRay(
                run_id=row.run_id,
                label=listing.labels[row.run_id],
                tone=None if tone is None else tone.at(row),
                at=[scale.at(row) for scale in scales],
            )
            for row in rows
        ],
        left_out=len(selection.rows) - len(rows),
    )


def _axes(listing: Listing, *, chosen: bool) -> list[Column]:
    columns = [c for c in listing.columns if c.key not in _NOT_DRAWN]
    if not chosen:
        # Progress and state say nothing of a finished sweep.
        columns = [c for c in columns if c.source != "run"]
    config = [c for c in columns if c.source == "config"]
    rest = [c for c in columns if c.source != "config"]
    return [*config, *rest][:MAX_AXES]


def _axis(scale: Scale) -> RunTableAxis:
    return RunTableAxis(
        name=scale.column.name,
        label=scale.column.label,
        low=scale.low,
        high=scale.high,
        is_log=scale.is_log,
        ends=list(scale.ends),
        values=list(scale.values),
    )
