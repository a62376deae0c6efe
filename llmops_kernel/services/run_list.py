"""List the runs of a store as command line and Python do, in one call."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llmops_kernel.errors import LLMOpsError, MissingDependencyError, QueryError, RunStateError
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.run_table import RunTable, families, parsed_summary, read_records
from llmops_kernel.services.runs import Run
from llmops_kernel.store.files import store_errors, write_whole
from llmops_kernel.store.garbage import folder_size
from llmops_kernel.store.index import IndexRow
from llmops_kernel.store.journal.summary import RunSummary
from llmops_kernel.store.run_notes import RunNotes, change_tags
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.run_query.listing import Listing
from llmops_kernel.views.run_query.query import Query
from llmops_kernel.views.run_query.row import Catalogue, Row, Value, row_of
from llmops_kernel.views.summary import list_runs, summary_of

if TYPE_CHECKING:
    import pandas as pd


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
    table.refresh()
    selection = table.select(query)
    filters = {"name": name, "cluster": cluster, "starred": starred}
    rows = [row for row in selection.rows if _is(row, filters)]
    return Listing.of(rows[:limit], table.catalogue, selection.columns, every=table.rows)


def _is(row: Row, filters: dict[str, str | bool | None]) -> bool:
    return all(value is None or row.get(key) == value for key, value in filters.items())


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
    summaries_listed = list_runs(
        store, name=name, cluster=cluster, starred=starred, hidden=hidden, limit=limit
    )
    records = read_records(store, [summary.run_id for summary in summaries_listed])
    rows = tuple(
        row_of(summary, store.notes(summary.run_id), config=values.config, facts=values.facts)
        for summary in summaries_listed
        if (values := records.get(summary.run_id)) is not None
    )
    return Listing.of(
        rows, Catalogue(rows), every=families(store, {run.name for run in summaries_listed})
    )


def summaries(store: RunStore, listing: Listing) -> list[RunSummary]:
    """Return the summaries of the listed runs; one that was deleted meanwhile is left out."""
    cached = store.index.rows()
    result = []
    for row in listing.rows:
        summary = _up_to_date(store, cached.get(row.run_id)) or summary_of(store, row.run_id)
        result += [] if summary is None else [summary]
    return result


def _up_to_date(store: RunStore, cached: IndexRow | None) -> RunSummary | None:
    if cached is None or cached.fingerprint != store.fingerprint(cached.run_id):
        return None
    return parsed_summary(cached.summary)


# --- Write a listing of runs as CSV or Parquet ---


Values = Mapping[str, Sequence[Value]]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write(values: Values, path: Path) -> Path:
    """Write columns to a `.csv` or `.parquet` file. Raises QueryError, StoreError."""
    writers = {".csv": csv_bytes, ".parquet": parquet_bytes}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise QueryError(
            f"{path.name} is neither a CSV nor a Parquet file.",
            remedy="end its name with .csv or .parquet",
        )
    data = writer(values)
    with store_errors("write", path):
        write_whole(path, data)
    return path


def csv_bytes(values: Values) -> bytes:
    """Return UTF-8 CSV, empty where unknown.

    A text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    text = io.StringIO()
    out = csv.writer(text)
    out.writerow([_text(name) for name in values])
    out.writerows(map(_text, line) for line in zip(*values.values(), strict=True))
    return text.getvalue().encode("utf-8", errors="replace")


def _text(value: Value) -> str | float:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    text = ", ".join(value) if isinstance(value, tuple) else value
    return f"'{text}" if text.startswith(_FORMULA) else text


def parquet_bytes(values: Values) -> bytes:
    """Return a Parquet file; a column of several types becomes text.

    Raises MissingDependencyError without pyarrow.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingDependencyError(
            "Parquet files need the package pyarrow.",
            remedy="pip install pyarrow, or write a .csv file",
        ) from None
    columns = {name: pa.array(_one_type(list(column))) for name, column in values.items()}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def _one_type(column: list[Value]) -> list[object]:
    kinds = {type(value) for value in column if value is not None}
    if len(kinds) <= 1 and kinds != {tuple}:
        return [_clean(value) for value in column]
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in column]  # type: ignore[arg-type]
    if kinds == {tuple}:
        return [None if value is None else list(map(_clean, value)) for value in column]  # type: ignore[arg-type]
    return [None if value is None else _clean(str(_text(value))) for value in column]


def _clean(value: object) -> object:
    """Replace half of a surrogate pair, as in a broken file name: it is no UTF-8."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def frame(values: Values) -> pd.DataFrame:
    """Return a DataFrame, indexed by run id."""
    import pandas as pd

    columns = {
        name: [list(v) if isinstance(v, tuple) else _clean(v) for v in column]
        for name, column in values.items()
    }
    return pd.DataFrame(columns).set_index("run")


# --- Bulk actions: losses of a deletion, delete, stop, tag ---


Report = Callable[[str], None]


@dataclass(frozen=True)
class Losses:
    """Data that deleting these runs would remove."""

    num_runs: int
    size_bytes: int
    num_checkpoints: int
    num_with_output: int
    starred: tuple[str, ...]
    missing: tuple[str, ...]
    """Deleted by somebody else."""


def losses(store: RunStore, run_ids: Sequence[str]) -> Losses:
    """Add up what the folders of these runs hold; a run that is gone is named."""
    present, missing, starred = [], [], []
    size = checkpoints = outputs = 0
    for run_id in dict.fromkeys(run_ids):
        try:
            folder = store.folder(run_id)
            starred += [run_id] if store.notes(run_id).starred else []
        except LLMOpsError:
            missing.append(run_id)
            continue
        present.append(run_id)
        size += folder_size(folder.root) or 0
        checkpoints += sum(1 for _ in folder.checkpoints.glob("*"))
        outputs += int(any(folder.output.glob("*")))
    return Losses(len(present), size, checkpoints, outputs, tuple(starred), tuple(missing))


def delete(backend: Backend, run_ids: Sequence[str], report: Report) -> list[str]:
    """Delete runs that have ended; return the ids. Raises RunStateError naming the others."""
    return _apply_to_each(run_ids, lambda run_id: Run(backend, run_id).delete(), "Deleted", report)


def stop(backend: Backend, run_ids: Sequence[str], report: Report) -> list[str]:
    """Request a stop of each; return the ids. Raises RunStateError naming those that failed."""
    return _apply_to_each(run_ids, lambda run_id: Run(backend, run_id).stop(), "Stopping", report)


def _apply_to_each(
    run_ids: Sequence[str], action: Callable[[str], object], verb: str, report: Report
) -> list[str]:
    finished, failed = [], []
    for number, run_id in enumerate(run_ids, start=1):
        try:
            action(run_id)
            finished.append(run_id)
        except LLMOpsError as error:
            failed.append(error)
        report(f"{verb} {number} of {len(run_ids)}")
    if failed:
        raise RunStateError(
            f"{len(failed)} of {len(run_ids)} runs were left as they are. The first reason:"
            f" {failed[0].message}",
            remedy=failed[0].remedy,
        )
    return finished


def tag(
    store: RunStore, run_ids: Sequence[str], *, add: Sequence[str], remove: Sequence[str]
) -> list[RunNotes]:
    """Change the tags of each run. Raises StoreError, RunNotFoundError."""
    return [change_tags(store.folder(run_id), add=add, remove=remove) for run_id in run_ids]
