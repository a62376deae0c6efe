"""Answer one question in SQL from the journals, and write the answer."""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmops_kernel.errors import MissingDependencyError, QueryError
from llmops_kernel.services.query.copy import ColumnarCopy, Report, literal
from llmops_kernel.services.query.tables import Table
from llmops_kernel.store.files import scratch_folder, store_errors
from llmops_kernel.store.store import RunStore

if TYPE_CHECKING:
    import pandas as pd

Parameters = Sequence[Any] | Mapping[str, Any] | None
_ROWS_AT_ONCE = 4_096
_NAMED = re.compile(r'(?:with name|named|[Cc]olumn(?! named)) "?([A-Za-z_][\w.]*)"?')
"""The name in DuckDB's error; of several the last one is what was not there."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
SEE_TABLES = "`llmops query --tables` lists tables and columns"


class Answer:
    """The rows of one answer, read once and in order.

    NULL is unknown. NaN and infinity are what a run reported. Times are UTC.
    """

    def __init__(self, db: Any, sql: str, parameters: Parameters, *, tables: Sequence[Table]):
        self._db, self._sql, self._parameters = db, sql, parameters
        self._tables = tables
        with self._errors():
            self._cursor = db.execute(sql, parameters)
        self.columns = tuple(column[0] for column in self._cursor.description)
        self.types = tuple(str(column[1]) for column in self._cursor.description)
        """DuckDB's names of their types."""

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows. Raises QueryError."""
        while True:
            with self._errors():
                some = self._cursor.fetchmany(_ROWS_AT_ONCE)
            if not some:
                return
            yield from some

    def count(self) -> int:
        """Return how many rows there are, by counting them; call it after `rows`."""
        with self._errors():
            counted = self._db.execute(
                f"SELECT count(*) FROM ({self._sql.strip().rstrip(';')}\n)", self._parameters
            )
            return int(counted.fetchone()[0])

    def frame(self) -> pd.DataFrame:
        """Return a DataFrame; a number that is unknown is `pd.NA`, one that is NaN stays NaN."""
        import pandas as pd

        with self._errors():
            arrays = self._cursor.fetchnumpy()
        return pd.DataFrame({name: _series(array) for name, array in arrays.items()})

    def write_parquet(self, path: Path) -> int:
        """Write or replace a Parquet file, the `output` of `answered`; return the number of rows.

        Raises QueryError, StoreError.
        """
        partial = partial_of(path)
        try:
            with self._errors(path=path):
                copied = self._db.execute(
                    f"COPY ({self._sql.strip().rstrip(';')}\n) TO {literal(str(partial))}"
                    " (FORMAT parquet, USE_TMP_FILE false)",
                    self._parameters,
                )
                count = int(copied.fetchone()[0])
            with store_errors("write", path):
                partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return count

    @contextmanager
    def _errors(self, path: Path | None = None) -> Iterator[None]:
        import duckdb

        try:
            yield
        except duckdb.InterruptException:
            raise KeyboardInterrupt from None
        except RuntimeError as error:
            if "interrupted" in str(error).lower():
                raise KeyboardInterrupt from None
            raise
        except duckdb.Error as error:
            if path is not None and isinstance(error, duckdb.IOException):
                with store_errors("write", path):
                    raise OSError(str(error)) from error
            raise query_error(error, self._sql, self._tables) from None


def partial_of(path: Path) -> Path:
    """Return the file that an output is written to before it gets its name."""
    absolute = path.absolute()
    return absolute.with_name(f".{absolute.name}.{os.getpid()}.tmp")


@contextmanager
def answered(
    sql: str,
    *,
    store: RunStore,
    parameters: Parameters = None,
    output: Path | None = None,
    timeout_s: float | None = None,
    rebuild: bool = False,
    report: Report | None = None,
) -> Iterator[tuple[Answer, tuple[str, ...]]]:
    """Answer a question in SQL; gives the answer, and notices about the copy it was read from.

    The SQL can read the tables and nothing else: no file, no setting, no network. `output` is
    the file that may be written besides. Raises QueryError for SQL that is wrong or takes longer
    than `timeout_s`, MissingDependencyError without DuckDB.
    """
    with scratch_folder("llmops-query") as spill, _connection(spill) as db:
        copy = ColumnarCopy(store, db, report=report)
        with copy.opened(rebuild=rebuild):
            _check_reads_only(db, sql, copy.tables)
            allowed = [*copy.paths, *([str(partial_of(output))] if output else ())]
            db.execute(f"SET allowed_paths = [{', '.join(map(literal, allowed))}]")
            db.execute("SET enable_external_access = false")
            db.execute("SET lock_configuration = true")
            with _limited(db, timeout_s):
                answer = Answer(db, sql, parameters, tables=copy.tables)
                yield answer, (*copy.notices, *_about_unread(db))


def _about_unread(db: Any) -> tuple[str, ...]:
    counting = db.cursor().execute("SELECT count(*), count(DISTINCT run) FROM unread")
    lines, runs = counting.fetchone()
    if not lines:
        return ()
    return (
        f"{lines:,} {'line' if lines == 1 else 'lines'} of {runs:,}"
        f" {'run' if runs == 1 else 'runs'} could not be read: SELECT * FROM unread",
    )


@contextmanager
def _connection(spill: Path) -> Iterator[Any]:
    try:
        import duckdb
    except ImportError:
        raise MissingDependencyError(
            "Questions in SQL need the package duckdb.", remedy="pip install duckdb"
        ) from None
    settings: dict[str, Any] = {
        "temp_directory": str(spill),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    db = duckdb.connect(":memory:", config=settings)
    try:
        yield db
    finally:
        db.close()


@contextmanager
def _limited(db: Any, timeout_s: float | None) -> Iterator[None]:
    """Interrupt what runs after `timeout_s`. Raises QueryError then."""
    is_over = threading.Event()

    def interrupt() -> None:
        is_over.set()
        db.interrupt()

    timer = threading.Timer(timeout_s or 0.0, interrupt)
    if timeout_s is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    except KeyboardInterrupt:
        if not is_over.is_set():
            raise
        raise QueryError(
            f"The query was stopped after {timeout_s:g} s.",
            remedy="read fewer rows, such as those of some runs, or allow more time",
        ) from None
    finally:
        timer.cancel()


def _check_reads_only(db: Any, sql: str, tables: Sequence[Table]) -> None:
    import duckdb

    try:
        statements = db.extract_statements(sql)
    except duckdb.Error as error:
        raise query_error(error, sql, tables) from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(str(each.type).rpartition(".")[2] for each in statements)
        raise QueryError(
            f"A query is one statement that reads; this is {kinds or 'empty'}.",
            remedy="write a single SELECT (or WITH, DESCRIBE, SUMMARIZE, SHOW)",
        )


def query_error(error: Exception, sql: str, tables: Sequence[Table]) -> QueryError:
    """Return DuckDB's error as ours: what is wrong, and names that are near a misspelt one."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    message = lines[0] if lines else type(error).__name__
    remedy = SEE_TABLES
    names = _NAMED.findall(message)
    if names and any(text in message for text in ("not found", "does not exist", "not have")):
        known = dict.fromkeys(c.name for table in tables for c in table.columns)
        every = [*(table.name for table in tables), *known]
        near = difflib.get_close_matches(names[-1].rpartition(".")[2], every, n=4, cutoff=0.6)
        remedy = f"did you mean {' or '.join(near)}? {SEE_TABLES}" if near else SEE_TABLES
    if "Memory" in message:
        remedy = "read fewer rows, such as those of some runs"
    if type(error).__name__ == "PermissionException":
        remedy = f"a query reads the tables of the journals only: {SEE_TABLES}"
    if "parquet" in message.lower() and type(error).__name__ in (
        "IOException",
        "InvalidInputException",
    ):
        remedy = "`llmops query --rebuild` makes the copy of the journals again"
    wrong = QueryError(message, remedy=remedy)
    wrong.position = _position(lines, sql)
    return wrong


def _position(lines: Sequence[str], sql: str) -> int | None:
    """Return the character that DuckDB marks, where it shows the whole text on one line."""
    for line, mark in pairwise(lines):
        if line == f"LINE 1: {sql}" and set(mark.strip()) == {"^"}:
            return mark.index("^") - len("LINE 1: ")
    return None


def _series(array: Any) -> Any:
    """Return a column for pandas that tells unknown (masked) from NaN."""
    import numpy as np
    import pandas as pd

    if not isinstance(array, np.ma.MaskedArray) or not np.ma.getmaskarray(array).any():
        return array.data if isinstance(array, np.ma.MaskedArray) else array
    mask, data = np.ma.getmaskarray(array), array.data
    if data.dtype.kind == "f":
        return pd.arrays.FloatingArray(data.astype("float64"), mask)
    if data.dtype.kind in "iu":
        return pd.arrays.IntegerArray(data, mask)
    if data.dtype.kind == "b":
        return pd.arrays.BooleanArray(data, mask)
    if data.dtype.kind in "mM":
        return pd.Series(data).where(~mask)
    return pd.Series([None if hidden else value for value, hidden in zip(data, mask, strict=True)])


# --- An answer as text ---


def csv_lines(answer: Answer) -> Iterator[str]:
    """Yield CSV, empty where unknown; a text that a spreadsheet would run gets an apostrophe."""
    text = io.StringIO()
    out = csv.writer(text)
    for number, row in enumerate(_with_head(answer)):
        out.writerow([_csv_cell(value) for value in row])
        if number % _ROWS_AT_ONCE == 0:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def _with_head(answer: Answer) -> Iterator[tuple[Any, ...]]:
    yield answer.columns
    yield from answer.rows()


def _csv_cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, float) and not math.isfinite(value):
        return plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return cell(value)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def json_lines(answer: Answer) -> Iterator[str]:
    """Yield one JSON list of objects; NaN and infinity are the texts that journals have."""
    separator = "["
    for row in answer.rows():
        values = {name: plain(value) for name, value in zip(answer.columns, row, strict=True)}
        yield f"{separator}\n  {json.dumps(values)}"
        separator = ","
    yield "[]\n" if separator == "[" else "\n]\n"


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def cell(value: Any) -> str:
    """Return a value as a cell of a table: six digits of a number, NaN as such."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        digits = 6 if abs(value) < 1e6 else 13
        return f"{value:.{digits}g}" if math.isfinite(value) else str(plain(value))
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(plain(value), ensure_ascii=False)
    return str(value)
