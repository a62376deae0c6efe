"""List the runs of a store as command line and Python do, in one call."""

from __future__ import annotations

from llmops_kernel.services.run_table.index import RunTable, parsed_summary, read_records
from llmops_kernel.services.run_table.names import families
from llmops_kernel.store.index import IndexRow
from llmops_kernel.store.journal.summary import RunSummary
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.run_query.catalogue import Catalogue
from llmops_kernel.views.run_query.listing import Listing
from llmops_kernel.views.run_query.query import Query
from llmops_kernel.views.run_query.row import Row, row_of
from llmops_kernel.views.summary import list_runs, summary_of


def list_rows(
    store: RunStore,
    query: Query,
    *,
    name: str | None = None,
    cluster: str | None = None,
    starred: bool | None = None,
    limit: int | None = None,
) -> Listing:
    """Return the runs that match, at most `limit`. Raises QueryError."""
    table = RunTable(store)
    table.look()
    found = table.select(query)
    wanted = {"name": name, "cluster": cluster, "starred": starred}
    rows = [row for row in found.rows if _is(row, wanted)]
    return Listing.of(rows[:limit], table.catalogue, found.columns, every=table.rows)


def _is(row: Row, wanted: dict[str, str | bool | None]) -> bool:
    return all(value is None or row.get(key) == value for key, value in wanted.items())


def newest(
    store: RunStore,
    *,
    name: str | None = None,
    cluster: str | None = None,
    starred: bool | None = None,
    hidden: bool = False,
    limit: int | None = None,
) -> Listing:
    """Return the newest runs; reads only their journals, however many runs there are."""
    found = list_runs(
        store, name=name, cluster=cluster, starred=starred, hidden=hidden, limit=limit
    )
    records = read_records(store, [summary.run_id for summary in found])
    rows = tuple(
        row_of(summary, store.notes(summary.run_id), config=values.config, more=values.facts)
        for summary in found
        if (values := records.get(summary.run_id)) is not None
    )
    return Listing.of(rows, Catalogue(rows), every=families(store, {run.name for run in found}))


def summaries(store: RunStore, listing: Listing) -> list[RunSummary]:
    """Return the summaries of the listed runs; one that was deleted meanwhile is left out."""
    kept = store.index.rows()
    found = []
    for row in listing.rows:
        summary = _up_to_date(store, kept.get(row.run_id)) or summary_of(store, row.run_id)
        found += [] if summary is None else [summary]
    return found


def _up_to_date(store: RunStore, kept: IndexRow | None) -> RunSummary | None:
    if kept is None or kept.fingerprint != store.fingerprint(kept.run_id):
        return None
    return parsed_summary(kept.summary)
