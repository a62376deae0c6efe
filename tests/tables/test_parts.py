"""The division of a table into parts: every row once, in order."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.errors import DataError
from llmops_kernel.tables.files import TableFile, table_files
from llmops_kernel.tables.reading import divide, read_part


def _file(path: Path) -> list[TableFile]:
    return table_files(str(path), roots=[path.parent])


@given(
    lines=st.lists(st.one_of(st.text(max_size=20).map("x{}".format), st.just(""), st.just("  "))),
    part_rows=st.integers(1, 12),
    limit=st.one_of(st.none(), st.integers(1, 50)),
    last_end=st.booleans(),
)
def test_jsonl_rows_come_once_and_in_order(
    lines: list[str], part_rows: int, limit: int | None, last_end: bool
) -> None:
    texts = [json.dumps({"t": line}) if line.strip() else line for line in lines]
    expected = [line for line in lines if line.strip()][:limit]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_text("\n".join(texts) + ("\n" if last_end and texts else ""))
        plan = divide(_file(path), part_rows=part_rows, limit=limit)
        rows = [row for part in plan.parts for row in read_part(part).rows]
    assert [row.values["t"] for row in rows] == expected
    assert [row.number for row in rows] == list(range(len(expected)))
    assert plan.num_rows == len(expected)
    assert all(part.num_rows <= part_rows for part in plan.parts)


@given(
    sizes=st.lists(st.integers(0, 17), min_size=1, max_size=4),
    groups=st.integers(1, 6),
    part_rows=st.integers(1, 9),
)
def test_parquet_rows_come_once_whatever_the_row_groups(
    sizes: list[int], groups: int, part_rows: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first = 0
        for number, size in enumerate(sizes):
            table = pa.table({"n": pa.array(range(first, first + size), pa.int64())})
            pq.write_table(table, Path(folder) / f"{number}.parquet", row_group_size=groups)
            first += size
        plan = divide(table_files(folder, roots=[]), part_rows=part_rows)
        rows = [row for part in plan.parts for row in read_part(part).rows]
    assert [row.values["n"] for row in rows] == list(range(first))
    assert [row.number for row in rows] == list(range(first))


def test_the_fingerprint_is_of_files_division_and_limit(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    plans = [divide(_file(path), part_rows=1), divide(_file(path), part_rows=2)]
    plans.append(divide(_file(path), part_rows=1, limit=1))
    path.write_text('{"a": 1}\n{"a": 3}\n{"a": 2}\n')
    plans.append(divide(_file(path), part_rows=1))
    assert len({plan.fingerprint for plan in plans}) == 4


def test_a_broken_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 no, it is not")
    with pytest.raises(DataError, match=r"rows\.parquet cannot be read"):
        divide(_file(path), part_rows=10)


def test_the_fingerprint_is_the_same_in_another_folder_at_another_time(tmp_path: Path) -> None:
    """As on a new cluster, where Ray unpacks the workspace again."""
    marks = set()
    for folder in ("one", "two"):
        data = tmp_path / folder / "data"
        data.mkdir(parents=True)
        (data / "a.jsonl").write_text('{"a": 1}\n')
        os.utime(data / "a.jsonl", (1, len(marks)))
        for path in ("data", "data/a.jsonl", "data/*.jsonl"):
            files = table_files(path, roots=[tmp_path / folder])
            marks.add((path, divide(files, part_rows=10).fingerprint))
    assert len(marks) == 3
