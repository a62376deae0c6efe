"""Training data in files for the tests of streams: rows that carry their own numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Rows of different lengths; `text` begins with the row's number."""
    return [{"text": f"{n} " + "ab " * (n * 7 % 23)} for n in range(first, first + count)]


def write_jsonl(path: Path, data: Sequence[Any], *, blank_every: int = 0) -> Path:
    """Write one row a line; a blank line after each so many."""
    lines = []
    for number, row in enumerate(data, start=1):
        lines.append(row if isinstance(row, str) else json.dumps(row))
        if blank_every and number % blank_every == 0:
            lines.append("  ")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def write_text(path: Path, data: Sequence[Any], *, blank_every: int = 0) -> Path:
    """Write the `text` of each row as a line."""
    lines = [row["text"].strip() for row in data]
    return write_jsonl(path, lines, blank_every=blank_every)


def save_with_datasets(path: Path, data: Sequence[Any], *, shards: int) -> Path:
    """Save a folder of Arrow files."""
    import datasets

    datasets.disable_progress_bars()
    datasets.Dataset.from_list(list(data)).save_to_disk(path, num_shards=shards)
    return path


def write_parquet(path: Path, data: Sequence[Any], *, group: int) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(data)), path, row_group_size=group)
    return path
