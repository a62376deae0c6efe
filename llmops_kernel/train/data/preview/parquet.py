"""Rows from all over a Parquet file: only the pages that they are in are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmops_kernel.train.data.preview.wanted import Numbered, Sample, Wanted

WHOLE_ROWS = 50_000
_WHOLE_BYTES = 32 << 20
"""Uncompressed: a file up to here is read whole."""
_GROUPS = 16


def of_parquet(path: Path, wanted: Wanted, *, count: int) -> Sample | None:
    """Return the first rows of some row groups; None if the file is small, empty or broken."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Without a buffer, for that would be the whole row group.
        with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
            total = file.metadata.num_rows
            total = total if wanted.limit is None else min(total, wanted.limit)
            if not total or _is_small(file.metadata, total):
                return None
            rows, groups = _of_groups(file, total, count, wanted)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return None
    of = file.metadata.num_row_groups
    where = "the first rows" if of == 1 else f"the first rows of {groups} of {of:,} row groups"
    return Sample(rows, total, where=where)


def _is_small(footer: Any, total: int) -> bool:
    groups = (footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))
    return total <= WHOLE_ROWS and sum(groups) <= _WHOLE_BYTES


def _of_groups(file: Any, total: int, count: int, wanted: Wanted) -> tuple[list[Numbered], int]:
    """Read the first rows of some row groups, spread over those that the run uses."""
    starts, passed = [], 0
    for group in range(file.num_row_groups):
        starts.append(passed)
        passed += file.metadata.row_group(group).num_rows
    used = [group for group, start in enumerate(starts) if start < total]
    chosen = [
        used[i * len(used) // min(_GROUPS, len(used))] for i in range(min(_GROUPS, len(used)))
    ]
    each = -(-count // len(chosen))
    columns = wanted.columns(file.schema_arrow.names)
    rows: list[Numbered] = []
    for group in chosen:
        first = starts[group]
        batches = file.iter_batches(
            batch_size=each, row_groups=[group], columns=columns, use_threads=False
        )
        found = next(batches, None)
        read = [] if found is None else found.to_pylist()
        rows += [Numbered(row, first + n) for n, row in enumerate(read, start=1)]
    return [one for one in rows if (one.number or 0) <= total][:count], len(chosen)
