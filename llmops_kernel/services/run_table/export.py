"""Write a listing of runs as CSV or Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmops_kernel.errors import MissingDependencyError, QueryError
from llmops_kernel.store.files import store_errors, write_whole
from llmops_kernel.views.run_query.row import Value

if TYPE_CHECKING:
    import pandas as pd

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
    """Half of a surrogate pair, as in a broken file name, is no UTF-8."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def frame(values: Values) -> pd.DataFrame:
    """Return a DataFrame, indexed by run id."""
    import pandas as pd

    columns = {
        name: [list(v) if isinstance(v, tuple) else _clean(v) for v in column]
        for name, column in values.items()
    }
    return pd.DataFrame(columns).set_index("run")
