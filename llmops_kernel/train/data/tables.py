"""Training rows of other formats than JSONL and Parquet, of patterns and of folders behind a URL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from llmops_kernel.errors import DataError
from llmops_kernel.tables.files import FORMATS, table_files
from llmops_kernel.tables.reading import divide, read_part

_PART_ROWS = 1000
_GLOB = frozenset("*?[")


def is_table(source: str, path: Path | None) -> bool:
    """Return whether `table_rows` reads a source; `path` is where it is on this node."""
    if _GLOB & set(source) and path is None:
        return True
    suffix = PurePosixPath(source).suffix.lower()
    if suffix == ".json":
        return _is_list(source if path is None else str(path))
    if "://" in source:
        return suffix not in {".jsonl", ".ndjson", ".parquet"}
    return path is not None and path.is_file() and suffix in FORMATS.keys() - {".jsonl", ".parquet"}


def _is_list(url: str) -> bool:
    (file,) = table_files(url, roots=[])
    return file.format == "json"


def table_rows(
    source: str, *, roots: Sequence[Path], split: str, broken: list[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows, part by part. Raises DataError, which names the file and the row.

    With a list `broken`, rows that cannot be read are left out and what is wrong is added to it.
    """
    files = table_files(source, roots=roots, split=split)
    for part in divide(files, part_rows=_PART_ROWS).parts:
        for row in read_part(part).rows:
            if not row.error:
                yield row.values
            elif broken is None:
                raise DataError(
                    f"{source}: {row.error}.",
                    remedy="correct or delete this row, or set data.on_error=skip",
                )
            else:
                broken.append(f"{source}: {row.error}.")
