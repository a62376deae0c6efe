"""Training rows of other formats than JSONL and Parquet, of patterns, of folders behind a URL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from llmops_kernel.errors import DataError
from llmops_kernel.tables.files import FORMATS, open_url, table_files
from llmops_kernel.train.data.splits import split_files

_PART_ROWS = 1000
_GLOB = frozenset("*?[")
_ELSEWHERE = frozenset({".jsonl", ".ndjson", ".parquet"})
"""`sources` reads single files of these without a look at all of their lines first."""


def is_table(source: str, path: Path | None) -> bool:
    """Return whether `table_rows` reads a source; `path` is where it is on this node.

    Raises DataError, MissingDependencyError.
    """
    is_url = "://" in source
    if path is None and not is_url:
        return bool(_GLOB & set(source))
    if _GLOB & set(source) and is_url:
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
