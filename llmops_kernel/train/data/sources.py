"""Reads rows from the kinds of source a data config may name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from llmops_kernel.errors import DataError
from llmops_kernel.store.files import find
from llmops_kernel.tables.files import FORMATS, open_url, table_files
from llmops_kernel.tables.formats.lines import not_json
from llmops_kernel.train.data.splits import split_files

Row = dict[str, Any]
_GLOB = frozenset("*?[")


def load_rows(
    source: str,
    *,
    roots: Sequence[Path],
    split: str = "train",
    limit: int | None = None,
    broken: list[str] | None = None,
    nulls: bool = False,
) -> list[Row]:
    """Return all rows of a source (at most `limit`). Raises `DataError`, with the row's number.

    With a list `broken`, rows that cannot be read are left out and what is wrong is added to it.
    With `nulls` empty values of a CSV are missing ones.
    """
    every = open_rows(source, roots=roots, split=split, broken=broken, nulls=nulls)
    rows = list(islice(every, limit))
    if not rows:
        raise DataError(
            f"{source} has no rows.", remedy="check the file, or data.train in the config"
        )
    return rows


def open_rows(
    source: str,
    *,
    roots: Sequence[Path],
    split: str,
    broken: list[str] | None = None,
    nulls: bool = False,
) -> Iterator[Row]:
    """Return the rows of a source, read as they are needed. Raises `DataError`.

    `broken` and `nulls` as in `load_rows`.
    """
    path = None if "://" in source else find(source, roots)
    if is_table(source, path):
        return table_rows(source, roots=roots, split=split, broken=broken, nulls=nulls)
    if "://" in source:
        return _from_url(source, broken)
    if path is not None:
        return _from_folder(path, split) if path.is_dir() else _from_file(path, source, broken)
    if _looks_like_file(source):
        searched = ", ".join(str(root) for root in roots)
        raise DataError(
            f"Data file {source!r} does not exist (looked in {searched}).",
            remedy="check data.train and data.eval; relative paths start at the workspace folder",
        )
    return _from_hub(source, split)


def _looks_like_file(source: str) -> bool:
    return source.startswith(("/", ".", "~")) or Path(source).suffix in FORMATS


def _from_file(path: Path, source: str, broken: list[str] | None) -> Iterator[Row]:
    if path.suffix == ".parquet":
        return _parquet_rows(path, source, broken)
    if path.suffix in {".jsonl", ".ndjson", ".json"}:
        return _file_rows(path, source, broken)
    raise DataError(
        f"{source}: files ending in {path.suffix or 'nothing'} are not read.",
        remedy=f"give rows as one of: {', '.join(FORMATS)}",
    )


def _file_rows(path: Path, source: str, broken: list[str] | None) -> Iterator[Row]:
    with path.open("rb") as file:
        yield from _json_rows(file, source, broken)


def _json_rows(lines: Iterable[bytes], source: str, broken: list[str] | None) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield json_row(line, number, source)
        except DataError as error:
            if broken is None:
                raise
            broken.append(error.message)


def json_row(line: bytes, number: int | str, source: str) -> Row:
    """Return the row of a line of JSON. Raises `DataError` with its number, or where it is."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        problem, remedy = not_json(line, error)
        raise DataError(f"{source}, row {number}: {problem}.", remedy=remedy) from error
    if not isinstance(row, dict):
        raise DataError(
            f"{source}, row {number}: a {type(row).__name__} where an object is needed.",
            remedy='write the row as {"field": value, ...}',
        )
    return row


def _parquet_rows(
    path: Any, source: str, broken: list[str] | None, filesystem: Any = None
) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 1
    try:
        for batch in pq.ParquetFile(path, filesystem=filesystem).iter_batches():
            yield from _batch_rows(batch, number, source, broken)
            number += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{source} cannot be read as Parquet: {error}",
            remedy="check that the file is complete: `python -m pyarrow.parquet` or re-export it",
        ) from error


def _batch_rows(batch: Any, first: int, source: str, broken: list[str] | None) -> list[Row]:
    """Return the rows; one by one if some text is not UTF-8, which Parquet does not check."""
    try:
        rows: list[Row] = batch.to_pylist()
    except UnicodeDecodeError:
        rows = []
        for number in range(batch.num_rows):
            try:
                rows += batch.slice(number, 1).to_pylist()
            except UnicodeDecodeError as error:
                message = (
                    f"{source}, row {first + number}: text that is not UTF-8 ({error.reason})."
                )
                if broken is None:
                    raise DataError(message, remedy="write the table's text as UTF-8") from error
                broken.append(message)
    return rows


def _from_folder(path: Path, split: str) -> Iterator[Row]:
    """Read a folder saved by `datasets` (save_to_disk), or one that holds data files."""
    import datasets

    try:
        if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
            loaded = datasets.load_from_disk(str(path))
            if isinstance(loaded, datasets.DatasetDict):
                loaded = _pick_split(loaded, split, str(path))
        else:
            loaded = _pick_split(datasets.load_dataset(str(path)), split, str(path))
    except (OSError, ValueError) as error:
        raise DataError(
            f"Folder {path} cannot be read as a data set: {error}",
            remedy="save it with datasets' save_to_disk, or name a .jsonl or .parquet file",
        ) from error
    return iter(loaded)


def _pick_split(loaded: Any, split: str, source: str) -> Any:
    if split not in loaded:
        raise DataError(
            f"{source} has no split {split!r}.",
            remedy=f"set data.train_split or data.eval_split to one of: {', '.join(loaded)}",
        )
    return loaded[split]


def is_hub_id(source: str, roots: Sequence[Path]) -> bool:
    """Return whether `open_rows` asks the hub for a source."""
    if "://" in source or _GLOB & set(source) or _looks_like_file(source):
        return False
    return find(source, roots) is None


def fetch(source: str, split: str) -> None:
    """Download a data set of the hub; this process reads it from the disk. Raises `DataError`."""
    _hub_set(source, split)


def _from_hub(source: str, split: str) -> Iterator[Row]:
    return iter(_hub_set(source, split))


@lru_cache(maxsize=8)
def _hub_set(source: str, split: str) -> Any:
    import datasets

    try:
        return datasets.load_dataset(source, split=split)
    except Exception as error:  # the hub client raises many unrelated types
        raise DataError(
            f"Data set {source!r} (split {split!r}) cannot be loaded from the hub: {error}",
            remedy="check the id and the split, HF_TOKEN for private sets, HF_HUB_OFFLINE, and the"
            " network of the cluster's nodes; or name a file",
        ) from error


def _from_url(source: str, broken: list[str] | None) -> Iterator[Row]:
    filesystem, path = open_url(source)
    try:
        if path.endswith(".parquet"):
            yield from _parquet_rows(path, source, broken, filesystem)
            return
        with filesystem.open(path, "rb") as file:
            yield from _json_rows(file, source, broken)
    except OSError as error:
        raise DataError(
            f"{source} cannot be read: {error}",
            remedy="check the URL and the node's credentials for it",
        ) from error


# --- Tables ---
# Training rows of other formats than JSONL and Parquet, of patterns, of folders behind a URL.


_PART_ROWS = 1000
_PATTERN_SIGNS = frozenset("*?[")
_ELSEWHERE = frozenset({".jsonl", ".ndjson", ".parquet"})
"""`sources` reads single files of these without a look at all of their lines first."""


def is_table(source: str, path: Path | None) -> bool:
    """Return whether `table_rows` reads a source; `path` is where it is on this node.

    Raises DataError, MissingDependencyError.
    """
    is_url = "://" in source
    if path is None and not is_url:
        return bool(_PATTERN_SIGNS & set(source))
    if _PATTERN_SIGNS & set(source) and is_url:
        return True
    suffix = PurePosixPath(source).suffix.lower()
    if suffix in _ELSEWHERE or (path is not None and path.is_dir()):
        return False
    if suffix == ".json":
        files = table_files(source if path is None else str(path), roots=[], hashed=False)
        return any(file.format == "json" for file in files)
    if suffix in FORMATS or not is_url:
        return suffix in FORMATS
    files, inner = open_url(source)
    return bool(files.isdir(inner))


def with_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a CSV, in which a value that is missing is an empty one."""
    return {name: value if value != "" else None for name, value in row.items()}


def table_rows(
    source: str,
    *,
    roots: Sequence[Path],
    split: str,
    broken: list[str] | None = None,
    nulls: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the rows, part by part. Raises DataError, which names the file and the row.

    With a list `broken`, rows that cannot be read are left out and what is wrong is added to it.
    With `nulls` empty values of a CSV are missing ones; hooks get them as they are.
    """
    # Here, for most runs read JSONL and would wait for the import.
    from llmops_kernel.tables.reading import iter_parts, read_part

    files = split_files(source, split, roots=roots)
    for part in iter_parts(files, part_rows=_PART_ROWS, first_row=1):
        for row in read_part(part).rows:
            if not row.error:
                yield with_nulls(row.values) if nulls and part.format == "csv" else row.values
            elif broken is None:
                raise DataError(
                    f"{source}: {row.error}.",
                    remedy="correct or delete this row, or set data.on_error=skip",
                )
            else:
                broken.append(f"{source}: {row.error}.")
