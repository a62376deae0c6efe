"""The output of a scoring: Parquet parts in a folder or behind a URL, read column by column."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np

from llmops_kernel.errors import ComparisonError, DataError, MissingDependencyError
from llmops_kernel.metrics.bootstrap import Floats
from llmops_kernel.metrics.scores import CORPUS, FOLDER, NEAREST, RETRIEVAL, ROW, grade_value
from llmops_kernel.tables.files import open_url

# --- Grades of a judge, by row ---


METRIC: Final = "judge"
_ROW: Final = f"input_{ROW}"
"""The judge's own rows are numbered too, so it has renamed the column of its input."""


def read_grades(files: Any, root: str, *, grades: Sequence[str]) -> Floats | None:
    """Return the place of each row's grade, 0..1, by the number of the row; None without a judge.

    NaN is a row that was not graded. `grades`: from best to worst.
    """
    import pyarrow.parquet as pq
    from pyarrow import fs

    folder = fs.FileSelector(f"{root.rstrip('/')}/{FOLDER}", allow_not_found=True)
    numbers, places = [], []
    values = {grade: grade_value(grade, grades) for grade in grades}
    for info in files.get_file_info(folder):
        if not info.base_name.startswith("part-"):
            continue
        with files.open_input_file(info.path) as source:
            table = pq.ParquetFile(source).read(columns=[_ROW, "label"])
        numbers.append(table.column(_ROW).cast("int64").to_numpy())
        labels = table.column("label").to_pylist()
        places.append(np.array([values.get(label) for label in labels], dtype=np.float64))
    if not numbers:
        return None
    rows = np.concatenate(numbers)
    grades_by_row = np.full(int(rows.max()) + 1 if len(rows) else 0, np.nan)
    grades_by_row[rows] = np.concatenate(places)
    return grades_by_row


def of_rows(grades: Floats, numbers: Sequence[int | None]) -> list[float]:
    """Return the places of some rows."""
    has_grade = [number is not None and 0 <= number < len(grades) for number in numbers]
    return [
        float(grades[number]) if is_known else float("nan")
        for number, is_known in zip(numbers, has_grade, strict=True)
    ]


METRIC_PREFIX: Final = "metric_"
_JUDGE: Final = METRIC_PREFIX + METRIC
_OUTPUT: Final = "output"
_PART: Final = "part-"
_SUCCESS: Final = "_SUCCESS"
_THREADS: Final = 8
"""Parts that are read at once: from a bucket each one waits for the network."""


@dataclass(frozen=True)
class Part:
    """A Parquet file of an output."""

    path: str
    rows: int
    columns: frozenset[str]


class ScoredOutput:
    """A finished output. Raises ComparisonError, MissingDependencyError.

    `name` is how messages call it, such as the run's id. With the `grades` of a judge, from best to
    worst, its rows have the metric `judge`.
    """

    def __init__(self, url: str, *, name: str, grades: Sequence[str] = ()) -> None:
        self.url, self.name = url, name
        self._files, root = _file_system(url, name)
        listed = self._list(root)
        paths = sorted(path for path in listed if _base(path).startswith(_PART))
        with ThreadPoolExecutor(_THREADS) as pool:
            self.parts = tuple(pool.map(self._part, paths))
        self.num_rows = sum(part.rows for part in self.parts)
        self._ends = list(accumulate(part.rows for part in self.parts))
        if not any(_base(path) == _SUCCESS for path in listed):
            raise self._not_finished()
        self.columns = frozenset[str]().union(*(part.columns for part in self.parts))
        places = self._read_grades(root, grades) if grades else None
        self._by_number: dict[str, Floats] = {} if places is None else {_JUDGE: places}
        """Columns that are kept beside the rows, by the number of the row."""
        self.corpus = ""
        """Fingerprint of the texts among which queries look; empty: it is no such scoring."""
        self._nearest: dict[int, str] = {}
        """Number of a row -> the text that its query finds first: what such a scoring answers."""
        if path := next((path for path in listed if _base(path) == RETRIEVAL), None):
            self._read_retrieval(path)
        self.columns |= self._by_number.keys()
        summary = next((path for path in listed if _base(path) == "_metrics.json"), None)
        self.totals = self._totals(summary) if summary else {}
        """Metrics of all rows, as the scoring computed them."""

    def read(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield each part as a pyarrow Table, in order; a column that it lacks is null."""
        for start in range(0, len(self.parts), _THREADS):
            group = self.parts[start : start + _THREADS]
            with ThreadPoolExecutor(_THREADS) as pool:
                yield from pool.map(lambda part: self._read(part, columns), group)

    def rows(self, positions: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return rows by their position in the whole output, in the order asked for."""
        by_part: dict[int, list[int]] = {}
        for position in positions:
            by_part.setdefault(bisect_right(self._ends, position), []).append(position)
        values: dict[int, dict[str, Any]] = {}
        numbers = list(by_part)
        with ThreadPoolExecutor(_THREADS) as pool:
            for number, rows in zip(
                numbers,
                pool.map(lambda n: self._rows(n, by_part[n], columns), numbers),
                strict=True,
            ):
                values |= dict(zip(by_part[number], rows, strict=True))
        return [values[position] for position in positions]

    def _rows(self, number: int, positions: list[int], columns: Sequence[str]) -> list[Any]:
        part = self.parts[number]
        first = self._ends[number] - part.rows
        table = self._read(part, columns)
        rows: list[Any] = table.take([position - first for position in positions]).to_pylist()
        return rows

    def _list(self, root: str) -> list[str]:
        from pyarrow import fs

        try:
            infos = self._files.get_file_info(fs.FileSelector(root))
        except OSError as error:
            raise ComparisonError(
                f"The output of {self.name} cannot be read at {self.url}: {_first_line(error)}",
                remedy="check that this machine sees the folder, or has credentials for the URL",
            ) from error
        return [info.path for info in infos]

    def _part(self, path: str) -> Part:
        import pyarrow.parquet as pq

        try:
            with self._files.open_input_file(path) as source:
                metadata = pq.read_metadata(source)
        except (OSError, ValueError) as error:
            raise self._broken_error(path, error) from error
        names = metadata.schema.to_arrow_schema().names
        return Part(path, metadata.num_rows, frozenset(names))

    def _read(self, part: Part, columns: Sequence[str]) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        present = [name for name in columns if name in part.columns]
        beside = [name for name in columns if name in self._by_number and ROW in part.columns]
        answers = bool(self._nearest) and _OUTPUT in columns
        if beside or answers:
            present = list(dict.fromkeys((*present, ROW)))
        try:
            with self._files.open_input_file(part.path) as source:
                table = pq.ParquetFile(source).read(columns=present)
        except (OSError, ValueError) as error:
            raise self._broken_error(part.path, error) from error
        for name in beside:
            values = of_rows(self._by_number[name], table.column(ROW).to_pylist())
            table = table.append_column(name, pa.array(values, pa.float64()))
        if answers:
            nearest = [self._nearest.get(number) for number in table.column(ROW).to_pylist()]
            table = table.drop_columns([_OUTPUT]).append_column(
                _OUTPUT, pa.array(nearest, pa.string())
            )
        for name in columns:
            if name not in table.column_names:
                table = table.append_column(name, pa.nulls(part.rows))
        return table.select(list(columns))

    def _read_grades(self, root: str, grades: Sequence[str]) -> Floats | None:
        try:
            return read_grades(self._files, root, grades=grades)
        except (OSError, ValueError) as error:
            raise ComparisonError(
                f"The judge's grades of {self.name} cannot be read: {_first_line(error)}",
                remedy=f"delete {self.url}/{FOLDER} and grade again: llmops retry",
            ) from error

    def _read_retrieval(self, path: str) -> None:
        import pyarrow.parquet as pq

        try:
            with self._files.open_input_file(path) as source:
                table = pq.ParquetFile(source).read()
        except (OSError, ValueError) as error:
            raise self._broken_error(path, error) from error
        self.corpus = (table.schema.metadata or {}).get(CORPUS, b"").decode()
        rows = table.column(ROW).to_numpy()
        nearest = table.column(NEAREST).to_pylist()
        self._nearest = dict(zip(map(int, rows), nearest, strict=True))
        for name in {*table.column_names} - {ROW, NEAREST}:
            values = np.full(int(rows.max()) + 1 if len(rows) else 0, np.nan)
            values[rows] = table.column(name).to_numpy()
            self._by_number[METRIC_PREFIX + name] = values

    def _broken_error(self, path: str, error: Exception) -> ComparisonError:
        return ComparisonError(
            f"The part {_base(path)} of {self.name} cannot be read: {_first_line(error)}",
            remedy="delete the part and score its rows again: llmops retry",
        )

    def _not_finished(self) -> ComparisonError:
        rows = f"{self.num_rows:,} row{'' if self.num_rows == 1 else 's'}"
        return ComparisonError(
            f"{self.name} has not finished: {self.url} has {rows} and no {_SUCCESS} file.",
            remedy="wait until it has ended, or let it continue with llmops retry",
        )

    def _totals(self, path: str) -> dict[str, float]:
        try:
            with self._files.open_input_stream(path) as source:
                data = json.loads(source.read())
        except (OSError, ValueError):
            return {}  # a summary: all that it says of rows is in the parts
        data = data.get("metrics", data) if isinstance(data, dict) else {}
        return {name: float(value) for name, value in data.items() if _is_number(value)}


def _file_system(url: str, name: str) -> tuple[Any, str]:
    try:
        import pyarrow as pa
        from pyarrow import fs
    except ImportError as error:
        raise MissingDependencyError(
            f"Comparing scored rows reads Parquet files, and pyarrow cannot be imported: {error}",
            remedy="pip install pyarrow",
        ) from error
    if "://" not in url:
        return fs.LocalFileSystem(), url
    try:
        return _as_scored(url)
    except (ImportError, MissingDependencyError, DataError) as error:
        try:
            system: tuple[Any, str] = fs.FileSystem.from_uri(url)
        except pa.ArrowInvalid:
            raise MissingDependencyError(
                f"The output of {name} at {url} cannot be opened: {error}",
                remedy=f"install the fsspec package for {url.partition('://')[0]}:// addresses",
            ) from error
        return system


def _as_scored(url: str) -> tuple[Any, str]:
    """Open a URL as the scoring did, so that the same credentials and settings are used."""
    from pyarrow import fs

    files, path = open_url(url)
    return fs.PyFileSystem(fs.FSSpecHandler(files)), path


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)
