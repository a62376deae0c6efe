"""Parallel coordinates over the table's columns."""

from __future__ import annotations

from llmops_kernel.server.run_table.answers import colour_scale, query_of
from llmops_kernel.server.run_table.live import LiveTable
from llmops_kernel.server.wire.run_table import (
    RunTableAxis,
    RunTableQuery,
    RunTableRay,
    RunTableRays,
)
from llmops_kernel.views.run_query.listing import Listing
from llmops_kernel.views.run_query.row import Column
from llmops_kernel.views.run_query.scale import Scale, scale_of

MAX_AXES = 12
MAX_RAYS = 1_000
_NOT_DRAWN = frozenset({"run", "name", "title", "note", "tags", "reason", "differs", "created"})


def rays(live: LiveTable, body: RunTableQuery) -> RunTableRays:
    """Return the matching runs as lines: what differs first, the figures last.

    Raises QueryError.
    """
    live.look()
    found, listing = live.ask(query_of(body))
    scales = [scale_of(column, found.rows) for column in _axes(listing, chosen=bool(body.columns))]
    scales = [scale for scale in scales if scale.values or scale.low is not None]
    if not body.columns:
        scales = [scale for scale in scales if not scale.is_constant]
    tone = colour_scale(live, body, listing) or next(
        (scale for scale in scales if scale.column.source == "figure"), None
    )
    drawn = found.rows[:MAX_RAYS]
    return RunTableRays(
        axes=[_axis(scale) for scale in scales],
        rays=[
            RunTableRay(
                run_id=row.run_id,
                label=listing.labels[row.run_id],
                tone=None if tone is None else tone.at(row),
                at=[scale.at(row) for scale in scales],
            )
            for row in drawn
        ],
        left_out=len(found.rows) - len(drawn),
    )


def _axes(listing: Listing, *, chosen: bool) -> list[Column]:
    columns = [c for c in listing.columns if c.key not in _NOT_DRAWN]
    if not chosen:
        # Progress and state say nothing of a finished sweep.
        columns = [c for c in columns if c.source != "run"]
    config = [c for c in columns if c.source == "config"]
    others = [c for c in columns if c.source != "config"]
    return [*config, *others][:MAX_AXES]


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
